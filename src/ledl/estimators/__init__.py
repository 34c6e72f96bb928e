"""The classifiers: parameters, validation and fitted attributes over the functions of `ledl.solvers`."""

from ledl.estimators._ledl import LEDLClassifier

__all__ = ["LEDLClassifier"]
