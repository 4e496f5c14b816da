#!/usr/bin/python3
"""Figures of the load table, from its records alone.

load_per_gpu.svg: for Qwen3-32B on dp 32 x tp 8, each GPU's matrix-optimizer FLOPs over the mean, a panel per strategy.
load_balance.svg: busiest GPU over the mean, by model and strategy, a panel per mesh.
"""

import argparse
import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

# Okabe and Ito's palette: tells apart for every kind of colour vision.
COLOURS = {
    "synchronous": "#999999",
    "layerwise": "#E69F00",
    "layerwise-lpt": "#CC79A7",
    "static": "#56B4E9",
    "canzona": "#009E73",
}
STYLE = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "canzona",  # equal records, equal file
    "figure.constrained_layout.use": True,
}


def read_records(folder):
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    if not records:
        sys.exit(f"{folder}: no records; run 'canzona reproduce' first")
    kinds = {record["kind"] for record in records}
    if kinds != {"computed"}:
        sys.exit(f"{folder}: records of kind {', '.join(sorted(kinds))}, allowed: computed")
    return records


def mesh_of(record):
    return f"dp {record['mesh']['dp']} × tp {record['mesh']['tp']}"


def strategies_in(records):
    """The published five in their order, then any other by name."""
    found = {record["strategy"] for record in records}
    return [name for name in COLOURS if name in found] + sorted(found - COLOURS.keys())


def colour_of(name):
    return COLOURS.get(name, "#0072B2")


def save(figure, path):
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    print(path)


def per_gpu(records, path, model="qwen3-32b", mesh="dp 32 × tp 8"):
    chosen = {r["strategy"]: r for r in records if r["model"] == model and mesh_of(r) == mesh}
    names = strategies_in(chosen.values())
    figure, axes = plt.subplots(len(names), 1, figsize=(6.4, 1.1 * len(names) + 0.6), sharex=True, sharey=True)
    for axis, name in zip(axes, names):
        record = chosen[name]
        loads = [load / record["flops"]["mean_gpu"] for load in record["loads"]["gpu"]]
        axis.stairs(loads, range(len(loads) + 1), fill=True, baseline=1e-3, color=colour_of(name))
        axis.axhline(1, color="black", linewidth=0.6, linestyle=":")
        axis.set_yscale("log", base=4)
        axis.set_ylim(1 / 16, 400)
        axis.set_yticks([0.25, 1, 4, 16, 64, 256], ["¼", "1", "4", "16", "64", "256"])
        axis.set_xlim(0, len(loads))
        axis.set_title(f"{name}: busiest GPU {record['balance']['gpu']:.2f} × mean", loc="left", fontsize=8)
    axes[-1].set_xlabel("GPU (rank; eight of a tensor-parallel group side by side)")
    figure.supylabel("Newton–Schulz FLOPs ÷ mean [computed]", fontsize=8)
    figure.suptitle(f"Load of each GPU, {model}, {mesh}, Muon", fontsize=9)
    save(figure, path)


def balance(records, path):
    meshes = list(dict.fromkeys(mesh_of(r) for r in sorted(records, key=lambda r: -r["mesh"]["tp"])))
    models = sorted({r["model"] for r in records}, key=lambda name: next(r["parameters"]["total"] for r in records if r["model"] == name))
    names = strategies_in(records)
    figure, axes = plt.subplots(len(meshes), 1, figsize=(6.4, 1.9 * len(meshes)), sharex=True, sharey=True, squeeze=False)
    width = 0.8 / len(names)
    for axis, mesh in zip(axes[:, 0], meshes):
        found = {(r["model"], r["strategy"]): r["balance"]["gpu"] for r in records if mesh_of(r) == mesh}
        for offset, name in enumerate(names):
            places = [index + (offset - (len(names) - 1) / 2) * width for index in range(len(models))]
            heights = [found[model, name] for model in models]
            axis.bar(places, heights, width, color=colour_of(name), label=name)
            for place, height in zip(places, heights):
                axis.text(place, height * 1.08, f"{height:.3g}", ha="center", va="bottom", fontsize=5.5, rotation=90)
        axis.set_yscale("log")
        axis.set_ylim(1, 2000)
        axis.set_title(mesh, loc="left", fontsize=8)
    axes[0, 0].legend(ncols=len(names), fontsize=7, frameon=False, loc="upper right", bbox_to_anchor=(1, 1.25))
    axes[-1, 0].set_xticks(range(len(models)), models)
    figure.supylabel("busiest GPU ÷ mean [computed]", fontsize=8)
    save(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=pathlib.Path, required=True, help="folder of load records")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="folder for the figures")
    arguments = parser.parse_args()
    records = read_records(arguments.records)
    arguments.output.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update(STYLE)
    per_gpu(records, arguments.output / "load_per_gpu.svg")
    balance(records, arguments.output / "load_balance.svg")


if __name__ == "__main__":
    main()
