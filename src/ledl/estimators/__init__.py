"""The estimators: parameters, checks and fitted attributes over the functions of `ledl.solvers`.

Besides the estimators there are the parts of new ones (docs/add_a_classifier.md), and the parts of LEDL's
training that model selection needs.
"""

from ledl.estimators._base import (
    DEVICE,
    N_JOBS,
    CallbackSupportMixin,
    DictionaryClassifier,
    DocumentedMixin,
    Tasks,
    accuracy,
    adopt,
    check_class_totals,
    check_flat,
    check_labelled,
    check_samples,
    check_weights,
    device_of,
    fit_context,
    fitted_attributes,
    for_chunks,
    kept_samples,
    number_labels,
    rollback_on_error,
    view_of,
    with_callbacks,
)
from ledl.estimators._crc import CRCClassifier
from ledl.estimators._csdl import CSDLClassifier
from ledl.estimators._ksvd import KSVD
from ledl.estimators._lcksvd import DKSVDClassifier, LCKSVDClassifier
from ledl.estimators._ledl import LEDLClassifier, coder_and_rule, prepare_training, read_atoms
from ledl.estimators._procrc import ProCRCClassifier
from ledl.estimators._src import SRCClassifier

__all__ = [
    "DEVICE",
    "KSVD",
    "N_JOBS",
    "CRCClassifier",
    "CSDLClassifier",
    "CallbackSupportMixin",
    "DKSVDClassifier",
    "DictionaryClassifier",
    "DocumentedMixin",
    "LCKSVDClassifier",
    "LEDLClassifier",
    "ProCRCClassifier",
    "SRCClassifier",
    "Tasks",
    "accuracy",
    "adopt",
    "check_class_totals",
    "check_flat",
    "check_labelled",
    "check_samples",
    "check_weights",
    "coder_and_rule",
    "device_of",
    "fit_context",
    "fitted_attributes",
    "for_chunks",
    "kept_samples",
    "number_labels",
    "prepare_training",
    "read_atoms",
    "rollback_on_error",
    "view_of",
    "with_callbacks",
]
