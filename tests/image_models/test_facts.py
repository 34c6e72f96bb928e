"""What is said about a model: hits, doubtful labels, nearly equal images."""

import shutil

import numpy as np
import pytest

from ledl.image_models import Record, doubtful_labels, facts, fit_folder, n_nearly_equal

Image = pytest.importorskip("PIL.Image")
from helpers.digits import NAMES  # noqa: E402


@pytest.mark.parametrize("unlabelled", [[], ["others"]], ids=["labelled", "unlabelled"])
def test_a_planted_mistake_is_the_most_doubtful_label(folder, tmp_path, unlabelled):
    shutil.copytree(folder / "known", tmp_path / "known")
    (tmp_path / "known" / NAMES[0] / "00.png").rename(tmp_path / "known" / NAMES[1] / "planted.png")
    others = [folder / name for name in unlabelled]
    known = tmp_path / "known"
    record = fit_folder(known, unlabelled=others, features="pixels", size=8, thumbnails=False).record
    first, *others = doubtful_labels(record)
    assert (record.files[first], record.cv_answers[first]) == (f"{NAMES[1]}/planted.png", NAMES[0])
    assert len(others) < 3


def test_hits_are_those_of_models_that_have_not_seen_the_image(folder, tmp_path):
    shutil.copytree(folder / "known", tmp_path / "known")
    lonely = tmp_path / "known" / "lonely"
    lonely.mkdir()
    shutil.copy(folder / "others" / "sieben" / "00.png", lonely)
    trained = fit_folder(tmp_path / "known", features="pixels", size=8, method="crc", thumbnails=False)
    record, rejecter = trained.record, trained.parts.rejecter
    labels = np.array(record.labels)
    assert facts(trained)["right"].endswith("lonely not tested (one image)")
    for name in NAMES:
        own = labels[rejecter.judged_] == name
        hits = np.sum(rejecter.cv_predictions_[own] == name)
        assert f"{name} {hits} of {own.sum()}" in facts(trained)["right"]
    assert record.cv_accuracy == np.mean(rejecter.cv_predictions_ == labels[rejecter.judged_])


def test_a_few_nearly_equal_images_make_no_figure_too_high():
    record = Record(files=[f"{i}.png" for i in range(21)], near_copies=[["0.png", "1.png"]])
    assert n_nearly_equal(record) == 0  # a tenth of all is many
    record.near_copies.append(["2.png", "1.png"])
    assert n_nearly_equal(record) == 3
