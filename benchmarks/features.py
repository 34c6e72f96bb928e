"""Features of images: agreement with the prepared ones, throughput, memory, and the pyramid against the whole
image.

    python benchmarks/features.py FOLDER MODEL.onnx [agreement|throughput|memory|pyramid ...]

FOLDER has class folders of UC Merced's images (airplane/airplane00.jpg, ...); `agreement` needs the prepared
dataset (LEDL_DATA). Throughput is against a bare loop over the same images in the same run: Pillow, NumPy,
ONNX Runtime, batch after batch. Accuracy is that of five training images a class, all others tested, eight
splits, at the classifiers' defaults: nothing is chosen.
"""

import argparse
import subprocess
import sys
import time

import numpy as np
import onnxruntime
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from ledl import CRCClassifier, LEDLClassifier
from ledl.datasets import few_shot_splits, load, load_image_folder
from ledl.features import NetworkFeatures

BATCH = 16


def agreement(listing, model):
    features = NetworkFeatures(model).transform(listing.filenames)
    rows = [
        100 * label + int(name[-6:-4]) for label, name in zip(listing.target, listing.filenames, strict=True)
    ]
    expected = load("ucmerced").data[rows]
    errors = np.linalg.norm(features - expected, axis=1) / np.linalg.norm(expected, axis=1)
    print(f"{len(rows)} images: relative error at most {errors.max():.1e}, median {np.median(errors):.1e}")


def bare_loop(files, session):
    mean = np.float32([103.939, 116.779, 123.68])
    for i in range(0, len(files), BATCH):
        batch = []
        for file in files[i : i + BATCH]:
            image = Image.open(file).convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
            batch.append((np.asarray(image, dtype=np.float32)[:, :, ::-1] - mean).transpose(2, 0, 1))
        session.run(["pool5"], {"x": np.stack(batch)})


def throughput(listing, model):
    files = listing.filenames[:160]
    session = onnxruntime.InferenceSession(model)
    extractor = NetworkFeatures(model, batch_size=BATCH).fit()
    times = {"bare loop": [], "NetworkFeatures": []}
    for _ in range(4):
        for name, work in (
            ("bare loop", lambda: bare_loop(files, session)),
            ("NetworkFeatures", lambda: extractor.transform(files)),
        ):
            start = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - start)
    bare, ours = (len(files) / np.median(times[name][1:]) for name in times)
    print(f"bare loop {bare:.1f} images a second, NetworkFeatures {ours:.1f}: {ours / bare:.2f} times")


def memory(listing, model):
    """Peak memory of a process of its own, for a few images and for many."""
    for n in (32, 1024):
        files = (listing.filenames * (n // len(listing.filenames) + 1))[:n]
        script = (
            "import resource, sys\nfrom ledl.features import NetworkFeatures\n"
            f"NetworkFeatures({model!r}).transform(sys.stdin.read().split())\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], input="\n".join(files), text=True, capture_output=True
        )
        print(f"{n} images: peak {float(done.stdout):.0f} MB")


def pyramid(listing, model):
    y = listing.target
    print("| features | method | accuracy, % |\n|---|---|---|")
    for name, options in (("pool5", {}), ("pyramid", {"pyramid": True})):
        X = NetworkFeatures(model, **options).transform(listing.filenames)
        for method, make in (
            ("CRC", lambda seed: CRCClassifier()),
            ("LEDL", lambda seed: LEDLClassifier(random_state=seed)),
            (
                "logistic regression",
                lambda seed: make_pipeline(Normalizer(), LogisticRegression(C=100, max_iter=2000)),
            ),
        ):
            accuracy = [
                100 * make(seed).fit(X[train], y[train]).score(X[test], y[test])
                for seed, (train, test) in enumerate(few_shot_splits(y))
            ]
            print(
                f"| {name} | {method} | {np.mean(accuracy):.1f} ± {np.std(accuracy, ddof=1):.1f} |", flush=True
            )


def main():
    studies = {f.__name__: f for f in (agreement, throughput, memory, pyramid)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("model")
    parser.add_argument("studies", nargs="*", default=list(studies), metavar="STUDY")
    options = parser.parse_args()
    listing = load_image_folder(options.folder, decode=False)
    for name in options.studies:
        studies[name](listing, options.model)


if __name__ == "__main__":
    main()
