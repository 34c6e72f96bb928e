"""A model that was read must predict before anybody gets it, in memory that its arrays bear out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import dropwhile
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from ledl.arrays import Array
from ledl.estimators._base import Dictionary, DictionaryClassifier, LassoCodes, OMPCodes, check_memory
from ledl.estimators._kernels import PairwiseKernel, PrecomputedKernel
from ledl.estimators._starts import n_starts_of
from ledl.features import PixelFeatures, ResNetFeatures
from ledl.persistence._shapes import SHAPES, check_floats, expect
from ledl.rejection import RejectingClassifier

# Bytes of a Gram matrix of atoms up to which loading makes one to try a model.
MAX_TRIAL = 2**30


@contextmanager
def plain_output(model: Any) -> Iterator[None]:
    """With arrays as output, whatever the user prefers: pandas may not be here."""
    config = vars(model).pop("_sklearn_output_config", None)
    try:
        yield
    finally:
        if config is not None:
            vars(model)["_sklearn_output_config"] = config


def try_dictionary(model: Any) -> None:
    """Code samples, and classify them; a dictionary too large for a trial is only refused if it is hopeless."""
    n_bytes = gram_bytes(model)
    if n_bytes > MAX_TRIAL:
        check_memory(n_bytes, "Its predictions", "Use a machine with more memory")
        return
    X = own_samples(model)
    with plain_output(model):
        if isinstance(model, DictionaryClassifier):
            _try_classifier(model, X)
        else:
            expect(bool(np.isfinite(model.transform(X)).all()), "its codes are not finite")


def gram_bytes(model: Any) -> int:
    """Of the Gram matrices that a fitted dictionary needs to code samples, one for each of its starts."""
    if not isinstance(model, LassoCodes | OMPCodes):
        return 0
    n_atoms = len(getattr(model, "_atoms", ()))
    return 8 * n_atoms**2 // n_starts_of(model)


def own_samples(model: Any) -> Array:
    """What a model must be able to code: one of its own samples or atoms, and where kernels allow it zeros."""
    space, kernel = model._space, getattr(model._space, "kernel", None)
    if isinstance(kernel, PairwiseKernel):
        own = kernel.training[:1]
    elif isinstance(kernel, PrecomputedKernel):
        own = space.coordinates[:1] @ space.coordinates.T
    else:
        own = space.expand(model._atoms[:1])
    if getattr(kernel, "kernel", None) == "poly":  # which may be negative at zero
        return own
    return np.concatenate([own, np.zeros_like(own)])


def _try_classifier(model: Any, X: Array) -> None:
    if hasattr(model, "decision_function"):
        expect(bool(np.isfinite(model.decision_function(X)).all()), "its scores are not finite")
    expect(len(model.predict(X)) == len(X), "it does not predict")


def holds_width(model: Any) -> bool:
    """Whether arrays of a fitted model bear out how many features it claims, which a trial needs memory for."""
    if isinstance(model, RejectingClassifier):
        return hasattr(model, "estimator_") and holds_width(model.estimator_)
    if isinstance(model, Dictionary):
        return hasattr(model, "_atoms")
    wanted = SHAPES.get(type(model).__name__, {})
    return any("d" in letters and getattr(model, name, None) is not None for name, letters in wanted.items())


def try_others(model: Any) -> None:
    if not holds_width(model):
        return
    X = np.zeros((1, model.n_features_in_))
    with plain_output(model):
        if hasattr(model, "predict"):
            _try_classifier(model, X)
        if hasattr(model, "transform") and (hasattr(model, "scalings_") or not hasattr(model, "predict")):
            model.transform(X)


def check_pipeline(model: Any) -> None:
    """Whether steps follow each other, and zeros come through where all steps take them."""
    expect(
        isinstance(model.steps, list | tuple)
        and all(isinstance(step, list | tuple) and len(step) == 2 for step in model.steps),
        "steps are a list of names and estimators",
    )
    expect(all(type(name) is str for name, _ in model.steps), "names of steps are strings")
    model._validate_steps()
    steps = list(flat(model))
    width = None
    for step in steps:
        taken = getattr(step, "n_features_in_", None)
        expect(
            None in (taken, width) or taken == width, f"a step gives {width} values and the next takes {taken}"
        )
        width = width_after(step) if width_after(step) is not None or not keeps_width(step) else width
    for step in steps[:-1]:  # alone they may pass on NaN, but no step here takes it
        for name in ("mean_", "min_", "scale_"):
            if getattr(step, name, None) is not None:
                check_floats(getattr(step, name), name)
    steps = list(dropwhile(lambda step: isinstance(step, PixelFeatures | ResNetFeatures), steps))
    # Steps that keep the number of values may come before one whose arrays bear it out.
    changing = [step for step in steps if holds_width(step) or width_after(step) is None]
    if changing and holds_width(changing[0]):
        _try_steps(steps, changing[0].n_features_in_)


def flat(pipeline: Any) -> Iterator[Any]:
    """The steps that do something, those of pipelines among them too."""
    for _, step in pipeline.steps:
        if isinstance(step, Pipeline):
            yield from flat(step)
        elif step is not None and step != "passthrough":
            yield step


def width_after(step: Any) -> int | None:
    """How many values a step gives, if that is known."""
    if isinstance(step, PixelFeatures):
        return int(step._n_features_out)
    if isinstance(step, ResNetFeatures):
        return getattr(step, "_n_features_out", None)
    if isinstance(step, Dictionary):
        return len(step._atoms) if hasattr(step, "_atoms") else None
    return getattr(step, "n_features_in_", None) if keeps_width(step) else None


def keeps_width(step: Any) -> bool:
    """Whether a step gives as many values as it takes."""
    return type(step).__name__ in ("Normalizer", "StandardScaler", "MinMaxScaler")


def _try_steps(steps: list[Any], width: int) -> None:
    """Take zeros through the steps."""
    X = np.zeros((1, width))
    for step in steps:
        fitted = len(vars(step)) > len(step.get_params(deep=False))
        heavy = gram_bytes(step) > MAX_TRIAL
        # Zeros may have become what this kernel does not take; it was tried with samples of its own.
        if not fitted or heavy or getattr(step, "kernel", None) == "poly":
            return
        with plain_output(step):
            if step is steps[-1] and hasattr(step, "predict"):
                _try_classifier(step, X)
            elif hasattr(step, "transform"):
                X = np.asarray(step.transform(X))
