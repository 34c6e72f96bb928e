"""The command line on a folder of images: how long a model takes, how good it is, and what labels cost.

    python benchmarks/images.py FOLDER [--features FILE.onnx] [--methods ledl ...] [--seeds 0 1 ...]

Trains with ``ledl fit --per-class 5`` for seeds 0 to 7, each a process of its own, all included, and judges by
``ledl predict --labels folder``; then the images a second of the extractor alone, of the extractor and the
classifier as ``ledl predict`` runs them, turn about, and of ``ledl predict`` as a whole process; the last also
for JPEG files of 12 megapixels, which are enlarged images of the folder with noise.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from ledl.image_models import open_image_model, predict_files
from ledl.images import image_files

LEDL = [sys.executable, "-m", "ledl"]
N_IMAGES, ROUNDS = 640, 5


def timed(words):
    start = time.perf_counter()
    done = subprocess.run([*LEDL, *map(str, words)], capture_output=True, text=True, check=True)
    return time.perf_counter() - start, done.stdout


def accuracy(folder, features, method, seeds, work):
    seconds, rates, guesses = [], [], []
    for seed in seeds:
        model = work / f"{seed}.ledl"
        words = ["fit", folder, "-o", model, "--per-class", 5, "--seed", seed, "--features", features]
        taken, told = timed([*words, "--method", method])
        seconds.append(taken)
        guesses.append(float(re.search(r"Accuracy: +([\d.]+) %", told)[1]))
        _, told = timed(["predict", model, folder, "--labels", "folder"])
        rates.append(float(re.search(r"Accuracy: +([\d.]+) %", told)[1]))
    print(f"{method}: fit {np.mean(seconds):.1f} s, at most {max(seconds):.1f}")
    print(f"{method}: accuracy on the others {np.mean(rates):.1f} ± {np.std(rates):.1f} %: {rates}")
    print(f"{method}: in cross-validation it was {np.mean(guesses):.1f} ± {np.std(guesses):.1f} %")
    return model


def throughput(model, files):
    loaded = open_image_model(model)
    extractor = loaded.extractor
    runs = {
        "extractor alone": lambda: extractor.transform(files),
        "with labels": lambda: list(predict_files(loaded, files)),
    }
    for run in runs.values():
        run()
    taken = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - start)
    rates = {name: len(files) / statistics.median(times) for name, times in taken.items()}
    ratios = [alone / both for alone, both in zip(*taken.values(), strict=True)]
    for name, rate in rates.items():
        print(f"{name}: {rate:.1f} images a second")
    print(f"ratio, median of {ROUNDS} pairs: {100 * statistics.median(ratios):.1f} %")
    whole_process(model, files, "images")


def whole_process(model, files, what):
    seconds, _ = timed(["predict", model, *files])
    print(f"ledl predict of {len(files)} {what}, all included: {len(files) / seconds:.1f} a second")


def enlarge(files, work):
    """Copies of 4000 x 3000 pixels. Noise gives them the details of photos of that size."""
    rng = np.random.default_rng(0)
    large = []
    for i, file in enumerate(files):
        pixels = np.asarray(Image.open(file).convert("RGB").resize((4000, 3000)), dtype=np.float32)
        noise = rng.normal(0, 12, (3000, 4000, 1)).astype(np.float32)
        large.append(work / f"{i}.jpg")
        Image.fromarray(np.uint8(np.clip(pixels + noise, 0, 255))).save(large[-1], quality=90)
    return large


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--features", default="auto")
    parser.add_argument("--methods", nargs="*", default=["ledl-cv"])
    parser.add_argument("--seeds", nargs="*", type=int, default=range(8))
    parser.add_argument("--accuracy-only", action="store_true", help="skip the images a second")
    options = parser.parse_args()
    files, _ = image_files([options.folder])
    files = (files * (1 + N_IMAGES // len(files)))[:N_IMAGES]
    with tempfile.TemporaryDirectory() as work:
        for method in options.methods:
            model = accuracy(options.folder, options.features, method, options.seeds, Path(work))
        if not options.accuracy_only:
            throughput(model, files)
            whole_process(model, enlarge(files[::20], Path(work)) * 2, "JPEG files of 12 megapixels")


if __name__ == "__main__":
    main()
