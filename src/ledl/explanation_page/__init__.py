"""Explanations as HTML pages: `page` makes the text, `Explanation.to_html` a file."""

from ledl.explanation_page._page import page
from ledl.explanation_pictures import Pictures

__all__ = ["Pictures", "page"]
