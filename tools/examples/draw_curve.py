#!/usr/bin/env python3
"""Draws the bits per character from the metrics of a run: the smoothed training curve and the held-out curve.

    draw_curve.py METRICS.jsonl PICTURE [--line NAME=BITS]...

Each --line adds a level to compare with.
"""
import argparse
import json
import math

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "weir"  # equal runs give equal files
from matplotlib import pyplot

# A point of the training curve is the average of WINDOW steps.
WINDOW = 50


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("metrics")
    parser.add_argument("picture")
    parser.add_argument("--line", action="append", default=[], metavar="NAME=BITS")
    arguments = parser.parse_args()

    with open(arguments.metrics) as lines:
        metrics = [json.loads(line) for line in lines]
    training = [
        (window[-1]["step"], sum(m["loss"] for m in window) / len(window) / math.log(2))
        for window in (metrics[i : i + WINDOW] for i in range(0, len(metrics), WINDOW))
    ]
    held_out = [(m["step"], m["eval_bits_per_byte"]) for m in metrics if "eval_bits_per_byte" in m]

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    axes.plot(*zip(*training), color="#9db4c8", label=f"training, mean of {WINDOW} steps")
    axes.plot(*zip(*held_out), color="#1f4e79", marker="o", markersize=3,
              label=f"held out: {held_out[-1][1]:.3f} at the end")
    for line in arguments.line:
        name, bits = line.rsplit("=", 1)
        axes.axhline(float(bits), color="#b5482a", linestyle="--", label=f"{name}: {float(bits):.3f}")
    axes.set(xlabel="step", ylabel="bits per character", ylim=(1, 3.5), xlim=(0, metrics[-1]["step"]))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(arguments.picture, metadata={"Date": None} if arguments.picture.endswith(".svg") else None)


if __name__ == "__main__":
    main()
