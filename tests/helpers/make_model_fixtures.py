"""Write a small model file of every kind to tests/persistence/fixtures, with samples and outcomes.

    PYTHONPATH=tests python -m helpers.make_model_fixtures

Files that are there stay: they show that what an earlier version saved still opens. Run it when there is a new
kind of model; for a new format, which does not open files of older ones, delete them all first.
"""

from pathlib import Path

from helpers.model_files import MODELS, fitted, outcomes
from ledl import save

FOLDER = Path(__file__).parents[1] / "persistence" / "fixtures"


def main():
    FOLDER.mkdir(exist_ok=True)
    for name in MODELS:
        if not list(FOLDER.glob(f"{name}.*ledl")):
            model, new = fitted(name)
            save(model, FOLDER / f"{name}.ledl", info={"samples": new, "outcomes": outcomes(model, new)})
    sizes = [file.stat().st_size for file in FOLDER.iterdir()]
    print(f"{len(sizes)} files, {sum(sizes):,} bytes")


if __name__ == "__main__":
    main()
