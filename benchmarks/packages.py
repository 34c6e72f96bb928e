"""What a user gets from the built package: the wheel in an empty environment, with each extra alone.

    python benchmarks/packages.py [EXTRA ...] [--pin REQUIREMENT ...] [--keep FOLDER]

Builds sdist and wheel, and the wheel once more from the sdist, which must have the same files. Then, for no
extra ("none"), for each extra alone, and for the sdist: an empty environment, the package with that extra, and
there `packages_smoke.py`. A `--pin` such as "torch==2.13.0" goes to pip where the extra needs that library.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", help="none, sdist, or an extra; all of them unless given")
    parser.add_argument("--pin", action="append", default=[], help="a requirement for pip")
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave it there")
    options = parser.parse_args()
    extras = options.extras or ["none", *EXTRAS, "sdist"]
    if unknown := set(extras) - {"none", "sdist", *EXTRAS}:
        parser.error(f"{', '.join(unknown)}: choose from none, sdist, {', '.join(EXTRAS)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        wheel, sdist = build(folder)
        network = write_network(folder)
        rows = []
        for extra in extras:
            pins = [pin for pin in options.pin if name(pin) in map(name, EXTRAS.get(extra, []))]
            rows.append(tried(extra, sdist if extra == "sdist" else wheel, pins, folder, network))
    report(rows)
    sys.exit(not all(row["told"] is None for row in rows))


def build(folder):
    """Wheel and sdist, in an environment with nothing but what pyproject.toml asks for."""
    python = make_environment(folder / "build")
    run([python, "-m", "pip", "install", "--quiet", *PROJECT["build-system"]["requires"]])
    run([python, "-m", "hatchling", "build", "-d", folder / "dist"], cwd=ROOT)
    wheel, sdist = only(folder / "dist", "*.whl"), only(folder / "dist", "*.tar.gz")
    run([python, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder / "again", sdist])
    again = only(folder / "again", "*.whl")
    files, files_again = (sorted(zipfile.ZipFile(path).namelist()) for path in (wheel, again))
    if files != files_again:
        sys.exit(f"The sdist gives another wheel; they differ in {sorted(set(files) ^ set(files_again))}.")
    print(f"{wheel.name}, {wheel.stat().st_size / 1e3:.0f} kB: {len(files)} files, the same from the sdist")
    return wheel, sdist


def write_network(folder):
    """A small ONNX file, which the environments have no means to write."""
    sys.path.insert(0, str(ROOT / "tests"))
    from helpers.networks import write_model

    write_model(folder / "network.onnx")
    return folder / "network.onnx"


def tried(extra, package, pins, folder, network):
    """A row of the table; "told" is None if all went well."""
    place = folder / f"with-{extra}"
    python = make_environment(place)
    empty, start = megabytes(place), time.perf_counter()
    row = {"extra": extra, "seconds": 0.0, "megabytes": 0.0, "packages": 0, "told": None}
    wanted = str(package) if extra in ("none", "sdist") else f"{package}[{extra}]"
    try:
        run([python, "-m", "pip", "install", "--quiet", wanted, *pins])
        row["seconds"], row["megabytes"] = time.perf_counter() - start, megabytes(place) - empty
        run([python, "-m", "pip", "check"])
        row["packages"] = len(run([python, "-m", "pip", "list", "--format=freeze"]).splitlines()) - 1
        # Isolated: nothing is imported but what was installed.
        script = Path(__file__).with_name("packages_smoke.py")
        print(run([python, "-I", script, extra, network], cwd=place).strip(), flush=True)
    except subprocess.CalledProcessError as error:
        row["told"] = f"{' '.join(map(str, error.cmd))}\n{error.stdout}\n{error.stderr}"
        print(f"{extra}: FAILED", flush=True)
    return row


def report(rows):
    print(f"\n{'extra':10} {'result':7} {'installed':>10} {'in':>7} {'packages':>9}")
    for row in rows:
        result = "pass" if row["told"] is None else "FAIL"
        size, seconds = f"{row['megabytes']:.0f} MB", f"{row['seconds']:.0f} s"
        print(f"{row['extra']:10} {result:7} {size:>10} {seconds:>7} {row['packages']:>9}")
    for row in rows:
        if row["told"] is not None:
            print(f"\n{row['extra']}: {row['told']}")


def make_environment(folder):
    venv.create(folder, with_pip=True, clear=True)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def run(command, cwd=None):
    """What a command prints; the variables by which Python would look into this repository are left out."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)), check=True, capture_output=True, text=True, cwd=cwd, env=environment
    )
    return done.stdout


def only(folder, pattern):
    (path,) = folder.glob(pattern)
    return path


def name(requirement):
    return re.match(r"[\w.-]+", requirement)[0].lower()


def megabytes(folder):
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink()) / 1e6


if __name__ == "__main__":
    main()
