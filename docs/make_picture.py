"""Make the picture of the README: train on digits as `make demo` does, explain one image, take a screenshot.

`make picture` runs it. It needs the extras `cli` and `images`, and Chromium or Chrome.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "chrome-headless-shell",
)
PICTURE = Path(__file__).parent / "images" / "explanation.png"
WIDTH, HEIGHT = 820, 1500  # of the picture, at most
MARGIN = 24


def write_page(folder: Path) -> Path:
    """Run the commands of `make demo` that end with an explanation. Return the page."""
    page = folder / "why.html"
    for command in (
        "datasets digits --out images",
        "fit images --out model.ledl --features pixels --size 8 --per-class 5",
        f"explain model.ledl images/3/00045.png --out {page.name}",
    ):
        print(f"ledl {command}", flush=True)
        subprocess.run([sys.executable, "-m", "ledl", *command.split()], cwd=folder, check=True)
    return page


def take_screenshot(browser: str, page: Path) -> Image.Image:
    """Return the top of the page as a browser shows it."""
    shot = page.with_suffix(".png")
    command = [
        *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
        f"--user-data-dir={page.parent / 'browser'}",
        f"--window-size={WIDTH},{HEIGHT}",
        f"--screenshot={shot}",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if not shot.exists():
        sys.exit(f"{browser} took no screenshot:\n{done.stderr}")
    return Image.open(shot).convert("RGB")


def crop(picture: Image.Image) -> Image.Image:
    """End the picture at the widest gap in its lower half, so that it shows complete parts of the page."""
    pixels = np.asarray(picture)
    filled = np.flatnonzero((pixels != pixels[0, 0]).any(axis=(1, 2)))
    if not len(filled):
        sys.exit("The screenshot is empty.")
    ends = np.append(filled, picture.height)
    lower = np.flatnonzero(filled >= picture.height // 2)
    last = lower[np.argmax(np.diff(ends)[lower])] if len(lower) else -1
    return picture.crop((0, 0, picture.width, min(filled[last] + 1 + MARGIN, picture.height)))


def main() -> None:
    """Write the picture."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"No browser found ({', '.join(BROWSERS)}). Install Chromium to make the picture again.")
    with tempfile.TemporaryDirectory() as folder:
        picture = crop(take_screenshot(browser, write_page(Path(folder))))
    picture.quantize(128).save(PICTURE, optimize=True)  # 128 colours: a third of the bytes
    print(f"{PICTURE}: {picture.width} x {picture.height} pixels, {PICTURE.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
