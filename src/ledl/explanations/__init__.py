"""Why a sample was taken for a class: what the scores are made of, as numbers, a figure and a page."""

from ledl.explanations._display import ExplanationDisplay, pyplot
from ledl.explanations._explain import explain
from ledl.explanations._explanation import Explanation
from ledl.explanations._page import page
from ledl.explanations._pictures import Pictures

__all__ = ["Explanation", "ExplanationDisplay", "Pictures", "explain", "page", "pyplot"]
