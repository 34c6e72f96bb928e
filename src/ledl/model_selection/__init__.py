"""Model selection: `BatchedSearchCV` for grids, and `LEDLClassifierCV`, LEDL with all settings chosen.

Besides these there are the parts that other models choose and calibrate with.
"""

from ledl.model_selection._batched_search import BATCHED, BatchedSearchCV, check_no_checkpoint
from ledl.model_selection._choice import (
    HELD_OUT_SAMPLES,
    N_FOLDS,
    Verdict,
    best_factor,
    cv_interval,
    default_folds,
    expected_accuracy,
    log_losses,
    wilson_interval,
)
from ledl.model_selection._ledl_cv import LEDLClassifierCV

__all__ = [
    "BATCHED",
    "HELD_OUT_SAMPLES",
    "N_FOLDS",
    "BatchedSearchCV",
    "LEDLClassifierCV",
    "Verdict",
    "best_factor",
    "check_no_checkpoint",
    "cv_interval",
    "default_folds",
    "expected_accuracy",
    "log_losses",
    "wilson_interval",
]
