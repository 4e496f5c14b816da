#!/usr/bin/python3
"""Figures of the load table, from its records alone.

An equal share is the FLOPs of all matrices, each once, over the number of GPUs.
load_per_gpu.svg: for one model and mesh, each GPU's matrix-optimizer FLOPs over an equal share, a panel per strategy.
load_balance.svg: busiest GPU over an equal share, by model and strategy, a panel per mesh.
"""

import argparse
import pathlib
import sys

from style import by_size, colour_of, mesh_of, plt, read_records, save, strategies_in


def per_gpu(records, path, model, mesh):
    chosen = {record["strategy"]: record for record in records if record["model"] == model and mesh_of(record) == mesh}
    if not chosen:
        sys.exit(f"no records of {model} on {mesh}; there are {', '.join(sorted({r['model'] + ' on ' + mesh_of(r) for r in records}))}")
    names = strategies_in(chosen.values())
    figure, axes = plt.subplots(len(names), 1, figsize=(6.4, 1.1 * len(names) + 0.6), sharex=True, sharey=True, squeeze=False)
    for axis, name in zip(axes[:, 0], names):
        record = chosen[name]
        loads = [load / record["flops"]["share"] for load in record["loads"]["gpu"]]
        axis.stairs(loads, range(len(loads) + 1), fill=True, baseline=1e-3, color=colour_of(name))
        axis.axhline(1, color="black", linewidth=0.6, linestyle=":")
        axis.set_yscale("log", base=4)
        axis.set_ylim(1 / 16, 400)
        axis.set_yticks([0.25, 1, 4, 16, 64, 256], ["¼", "1", "4", "16", "64", "256"])
        axis.set_xlim(0, len(loads))
        axis.set_xticks(range(0, len(loads) + 1, max(1, len(loads) // 8)))
        idle = sum(load == 0 for load in loads)
        axis.set_title(f"{name}: busiest GPU {record['balance']['gpu']:.2f} × an equal share, {idle} idle", loc="left", fontsize=8)
    axes[-1, 0].set_xlabel(f"GPU ({records[0]['mesh']['tp']} of a tensor-parallel group side by side)")
    figure.supylabel("matrix-optimizer FLOPs ÷ an equal share [computed]", fontsize=8)
    figure.suptitle(f"Load of each GPU, {model}, {mesh}, {chosen[names[0]]['optimizer']}", fontsize=9)
    save(figure, path)


def balance(records, path):
    meshes = list(dict.fromkeys(mesh_of(r) for r in sorted(records, key=lambda r: -r["mesh"]["tp"])))
    models = by_size(records)
    names = strategies_in(records)
    figure, axes = plt.subplots(len(meshes), 1, figsize=(6.4, 2.1 * len(meshes) + 0.3), sharex=True, sharey=True, squeeze=False)
    width = 0.86 / len(names)
    for axis, mesh in zip(axes[:, 0], meshes):
        found = {(r["model"], r["strategy"]): r["balance"] for r in records if mesh_of(r) == mesh}
        for offset, name in enumerate(names):
            bars = [(index + (offset - (len(names) - 1) / 2) * width, found[model, name]["gpu"])
                    for index, model in enumerate(models) if (model, name) in found]
            axis.bar(*zip(*bars), width, color=colour_of(name), label=name)
            for place, height in bars:
                axis.text(place, height * 1.08, f"{height:.3g}", ha="center", va="bottom", fontsize=7, rotation=90)
        for index, model in enumerate(models):
            bound = next(figures["gpu_bound"] for (name, _), figures in found.items() if name == model)
            axis.hlines(bound, index - 0.46, index + 0.46, color="black", linewidth=0.8, linestyle="--")
        axis.set_yscale("log")
        axis.set_ylim(1, 3000)
        axis.set_title(mesh, loc="left", fontsize=8)
    axes[0, 0].legend(ncols=len(names), fontsize=7, frameon=False, loc="lower right", bbox_to_anchor=(1, 1.08))
    axes[-1, 0].set_xticks(range(len(models)), models)
    figure.supylabel("busiest GPU ÷ an equal share [computed]; dashed: bound", fontsize=8)
    save(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=pathlib.Path, required=True, help="folder of load records")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="folder for the figures")
    parser.add_argument("--optimizer", default="muon", help="whose records (default: %(default)s)")
    parser.add_argument("--model", default="qwen3-32b", help="of load_per_gpu.svg (default: %(default)s)")
    parser.add_argument("--mesh", default="32x8", help="dp x tp of load_per_gpu.svg (default: %(default)s)")
    arguments = parser.parse_args()
    records = read_records(arguments.records, arguments.optimizer, "computed")
    if all(record["flops"]["total"] == 0 for record in records):
        sys.exit(f"{arguments.records}: {arguments.optimizer} updates no whole matrix, so there is no load to draw")
    mesh = "dp {} × tp {}".format(*arguments.mesh.split("x")) if arguments.mesh.count("x") == 1 else parser.error("--mesh is DPxTP")
    per_gpu(records, arguments.output / "load_per_gpu.svg", arguments.model, mesh)
    balance(records, arguments.output / "load_balance.svg")


if __name__ == "__main__":
    main()
