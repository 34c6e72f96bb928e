"""What an iteration of LEDL costs on a cluster, on paper: flops, bytes, and seconds.

    python benchmarks/cluster_cost.py [--samples 14000000] [--features 2048] [--atoms 10000] [--classes 1000]

Rates are measured: 70 GFlop/s a core (benchmarks/cluster.py and out_of_core.py: samples a second times flops a
sample) and 35.6 TFlop/s a GPU (benchmarks/gpu.py large: 66 % of 53.9), float32 both. A machine is taken to have
32 such cores, the network to give 10 Gbit/s to each. There is one block a worker, and sums are added eight at a
time, in a tree.
"""

import argparse
import math

CORE, CORES, GPU, NETWORK, FAN_IN = 70e9, 32, 35.6e12, 1.25e9, 8


def flops(d, K, c):
    """Of a sample in an iteration: code step and sums."""
    q = d + 2 * c
    if q < K:  # in the space of the targets
        return 6 * K * q + 2 * q**2 + K**2
    return 4 * K * d + 3 * K**2


def adding(workers, n_bytes):
    """Seconds of a tree: at each level one receives what up to seven others have; the client takes the last."""
    seconds = n_bytes / NETWORK
    while workers > 1:
        seconds += (min(workers, FAN_IN) - 1) * n_bytes / NETWORK
        workers = math.ceil(workers / FAN_IN)
    return seconds


def row(workers, rate, n, d, K, c):
    q = d + 2 * c
    out, back = 4 * (K * q + min(K, q) ** 2), 4 * K * (K + q)
    parts = {
        "work on blocks": n * flops(d, K, c) / (workers * rate),
        "step sent": math.ceil(math.log2(workers)) * out / NETWORK,
        "sums added": adding(workers, back),
        "atoms": (4 * K**2 * q + 2 * K * q * min(K, q)) / rate,
    }
    return parts, sum(parts.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"samples": 14_000_000, "features": 2048, "atoms": 10_000, "classes": 1000}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    n, d, K, c = options.samples, options.features, options.atoms, options.classes
    q = d + 2 * c
    print(f"{flops(d, K, c) / 1e6:,.1f} MFlop a sample, {n * flops(d, K, c) / 1e15:,.2f} PFlop an iteration")
    print(f"samples {4 * n * d / 1e9:,.0f} GB, codes {8 * n * K / 1e9:,.0f} GB")
    step = 4 * (K * q + min(K, q) ** 2) / 1e6
    print(f"each block hands back {4 * K * (K + q) / 1e6:,.0f} MB; a step is {step:,.0f} MB")
    for kind, rate in (("machines", CORES * CORE), ("GPUs", GPU)):
        for workers in (16, 64):
            parts, total = row(workers, rate, n, d, K, c)
            share = parts["work on blocks"] / total
            told = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in parts.items())
            print(f"{workers} {kind}: {told}; in all {total:.0f} s, {share:.0%} work; 30: {total / 2:.0f} min")
        most = next(
            w for w in range(2, 10**6) if (r := row(w, rate, n, d, K, c))[0]["work on blocks"] < r[1] / 2
        )
        print(f"half of the time is not work from {most} {kind} on")


if __name__ == "__main__":
    main()
