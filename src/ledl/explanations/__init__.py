"""Explain why a sample was given its class: the terms of its scores as numbers, a figure and a page."""

from ledl.explanations._display import pyplot as pyplot  # for ledl.plots, not for users
from ledl.explanations._explain import Explanation, ExplanationDisplay, explain
from ledl.explanations._page import Embedded as Embedded  # these three are for other pages of ledl
from ledl.explanations._page import Picture as Picture
from ledl.explanations._page import Pictures, page
from ledl.explanations._page import embed as embed

__all__ = ["Explanation", "ExplanationDisplay", "Pictures", "explain", "page"]
