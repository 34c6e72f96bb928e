"""Import time of ledl, of its classifier, and of `ledl --help`, against `import sklearn.linear_model`.

    python benchmarks/import_time.py

Medians of nine fresh interpreters each, turn about.
"""

import statistics
import subprocess
import sys
import time

HELP = "import sys; sys.argv = ['ledl', '--help']; from ledl.__main__ import main; main()"
STATEMENTS = ["pass", "import sklearn.linear_model", "import ledl", "from ledl import LEDLClassifier", HELP]


def seconds(statement):
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main():
    for statement in STATEMENTS:
        seconds(statement)
    rounds = [[seconds(statement) for statement in STATEMENTS] for _ in range(9)]
    bare, sklearn, *ours = (statistics.median(times) for times in zip(*rounds, strict=True))
    print(f"{STATEMENTS[1]}: {1e3 * (sklearn - bare):.0f} ms (and {1e3 * bare:.0f} ms for Python)")
    for statement, time_taken in zip(STATEMENTS[2:], ours, strict=True):
        ratio = (time_taken - bare) / (sklearn - bare)
        name = "ledl --help" if statement == HELP else statement
        print(f"{name}: {1e3 * (time_taken - bare):.0f} ms, {ratio:.2f} times that")


if __name__ == "__main__":
    main()
