"""Write a small model file of every kind to tests/persistence/fixtures, with samples and outcomes.

    PYTHONPATH=tests python -m helpers.make_model_fixtures

Existing files stay: they show that files of earlier versions still open. Run this for a new kind of model. If
a new format does not open older files, delete them all first.
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
