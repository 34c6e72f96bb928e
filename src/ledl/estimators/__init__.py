"""The estimators: parameters, validation and fitted attributes over the functions of `ledl.solvers`."""

from ledl.estimators._base import DictionaryClassifier
from ledl.estimators._crc import CRCClassifier
from ledl.estimators._csdl import CSDLClassifier
from ledl.estimators._ksvd import KSVD
from ledl.estimators._lcksvd import DKSVDClassifier, LCKSVDClassifier
from ledl.estimators._ledl import LEDLClassifier
from ledl.estimators._src import SRCClassifier

__all__ = [
    "KSVD",
    "CRCClassifier",
    "CSDLClassifier",
    "DKSVDClassifier",
    "DictionaryClassifier",
    "LCKSVDClassifier",
    "LEDLClassifier",
    "SRCClassifier",
]
