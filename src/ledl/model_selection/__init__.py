"""Model selection: many candidates and folds as one batched solve, and LEDL with everything chosen."""

from ledl.model_selection._search import BATCHED, BatchedSearchCV, Fold, judge
from ledl.model_selection._tuning import HELD_OUT_SAMPLES, KERNELS, N_FOLDS, LEDLClassifierCV, choose, verdict

__all__ = [
    "BATCHED",
    "HELD_OUT_SAMPLES",
    "KERNELS",
    "N_FOLDS",
    "BatchedSearchCV",
    "Fold",
    "LEDLClassifierCV",
    "choose",
    "judge",
    "verdict",
]
