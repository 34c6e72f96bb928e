"""Records of training in model files."""

from dataclasses import asdict, replace

import numpy as np
import pytest

import ledl
from ledl.image_models import Record, open_image_model
from ledl.image_models._record import image_model
from ledl.persistence import read

Image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize(
    "changed",
    [
        {"files": {f"f{i}": 1 for i in range(18)}},
        {"labels": ["x"] * 17},
        {"thumbnails": [np.zeros(3)] * 18},
        {"skipped": [["a"]]},
        {"settings": [1]},
        {"cv_accuracy": 7.0},
        {"cv_interval": [0.5]},
        {"cv_interval": [0.5, 2.0]},
        {"cv_interval": (0.5, 0.6)},
        {"files": np.zeros(18)},
        {"made": 5},
        {"unlabelled": [1]},
        {"unlabelled": np.zeros(3)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_changed_records_are_refused(trained, changed):
    assert Record.from_info(asdict(trained.record)).sha256 == trained.record.sha256
    with pytest.raises(ledl.ModelFileError, match="was not written by ledl fit"):
        Record.from_info({**asdict(trained.record), **changed})


def test_a_record_with_other_unlabelled_images_is_refused(trained):
    with pytest.raises(ledl.ModelFileError, match="is of another model"):
        image_model(trained.model, replace(trained.record, unlabelled=["a.png"]))


def test_a_model_without_a_record_can_be_used(trained, tmp_path):
    ledl.save(trained.model, tmp_path / "t.ledl", info=[1, 2])
    assert open_image_model(tmp_path / "t.ledl").record == Record()


def test_records_of_many_images_fit_into_a_file(trained, tmp_path):
    n = 60_000
    record = Record(
        files=[f"class/a name of some length, {i}.jpg" for i in range(n)],
        sha256=[f"{i:064x}" for i in range(n)],
        labels=["class", "another"] * (n // 2),
        cv_answers=["class", ""] * (n // 2),
        near_copies=[[f"class/a name of some length, {i}.jpg" for i in (0, k)] for k in range(1, n)],
    )
    ledl.save(trained.model, tmp_path / "t.ledl", info=record.to_info())
    assert Record.from_info(read(tmp_path / "t.ledl").info) == record
