#!/usr/bin/python3
"""Figures of simulated or measured steps, from their records alone.

step_latency.svg: the optimizer step by model and strategy, split into compute, exposed communication and waiting; of
measured ones, a diamond where the prediction lies.
step_timeline.svg: one iteration of one model on the rank that finishes last, a panel per strategy, a lane per stream.
"""

import argparse
import pathlib
import sys

from style import by_size, mesh_of, plt, read_records, save, strategies_in

PARTS = [("compute", "#0072B2"), ("exposed_communication", "#E69F00"), ("waiting", "#CCCCCC")]
ACTIONS = {
    "Forward": "#999999",
    "Backward": "#666666",
    "ReduceGradients": "#E69F00",
    "AgreeOnGradients": "#000000",
    "GatherShards": "#F0E442",
    "Update": "#0072B2",
    "UpdateElements": "#56B4E9",
    "ScatterUpdates": "#D55E00",
    "Apply": "#009E73",
    "GatherParameters": "#CC79A7",
}
LANES = ["compute", "tp", "dp"]


def latency(records, path, kind):
    models = by_size(records)
    names = strategies_in(records)
    figure, axes = plt.subplots(1, len(models), figsize=(7.2, 3.1), squeeze=False)
    for axis, model in zip(axes[0], models):
        chosen = {record["strategy"]: record for record in records if record["model"] == model}
        totals = {name: chosen[name]["seconds"]["optimizer_step"] * 1e3 for name in names if name in chosen}
        # The slowest strategy would flatten all others: where it is more than twice the next, its bar is cut and labelled.
        ranked = sorted(totals.values())
        limit = 1.3 * (ranked[-2] if len(ranked) > 1 and ranked[-1] > 2 * ranked[-2] else ranked[-1])
        for place, name in enumerate(names):
            if name not in totals:
                continue
            bottom = 0.0
            for part, colour in PARTS:
                height = chosen[name]["parts"][part] * 1e3
                axis.bar(place, height, 0.8, bottom=bottom, color=colour)
                bottom += height
            cut = totals[name] > limit
            label = f"{totals[name]:.0f} (cut)" if cut else f"{totals[name]:.3g}"
            if "predicted" in chosen[name]:
                axis.plot(place, chosen[name]["predicted"]["seconds"]["optimizer_step"] * 1e3, "D", color="black", markersize=3, clip_on=False)
            axis.text(place, limit * 0.97 if cut else totals[name] + limit * 0.02, label, ha="center", va="top" if cut else "bottom",
                      fontsize=6.5, rotation=90, color="white" if cut else "black")
        axis.set_ylim(0, limit)
        axis.set_title(model, fontsize=8)
        axis.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes[0, 0].set_ylabel(f"optimizer step, ms [{kind}]")
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for _, colour in PARTS]
    figure.legend(handles, [part.replace("_", " ") for part, _ in PARTS], ncols=3, fontsize=7, frameon=False, loc="upper right")
    figure.suptitle(f"{records[0]['cluster']}, {mesh_of(records[0])}, {records[0]['optimizer']}", fontsize=8, x=0.01, ha="left")
    save(figure, path)


def timeline(records, path, model, kind):
    chosen = {record["strategy"]: record for record in records if record["model"] == model}
    if not chosen:
        sys.exit(f"no records of {model}")
    names = strategies_in(chosen.values())
    figure, axes = plt.subplots(len(names), 1, figsize=(6.8, 0.95 * len(names) + 0.8), squeeze=False)
    for axis, name in zip(axes[:, 0], names):
        record = chosen[name]
        for lane, stream in enumerate(LANES):
            for action, colour in ACTIONS.items():
                spans = [(step["begin"] * 1e3, (step["end"] - step["begin"]) * 1e3) for step in record["timeline"]["steps"]
                         if step["stream"] == stream and step["name"] == action]
                axis.broken_barh(spans, (-lane - 0.4, 0.8), facecolors=colour)
        axis.axvline(record["seconds"]["forward_backward"] * 1e3, color="black", linewidth=0.6, linestyle="--")
        axis.set_xlim(0, record["seconds"]["iteration"] * 1e3 * 1.02)
        axis.set_yticks([-lane for lane in range(len(LANES))], LANES, fontsize=7)
        axis.set_title(f"{name}: {record['seconds']['iteration'] * 1e3:.0f} ms, of which the step {record['seconds']['optimizer_step'] * 1e3:.0f} ms",
                       loc="left", fontsize=8)
    axes[-1, 0].set_xlabel(f"ms from the end of the step before [{kind}]; dashed: last gradient reduced")
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in ACTIONS.values()]
    axes[0, 0].legend(handles, ACTIONS, ncols=5, fontsize=6, frameon=False, loc="lower right", bbox_to_anchor=(1, 1.15))
    save(figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=pathlib.Path, required=True, help="folder of step records")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="folder for the figures")
    parser.add_argument("--optimizer", default="muon", help="whose records (default: %(default)s)")
    parser.add_argument("--model", default="qwen3-32b", help="of step_timeline.svg (default: %(default)s)")
    parser.add_argument("--kind", choices=["simulated", "measured"], default="simulated", help="of the records (default: %(default)s)")
    arguments = parser.parse_args()
    records = read_records(arguments.records, arguments.optimizer, arguments.kind)
    settings = {(record["cluster"], mesh_of(record)) for record in records}
    if len(settings) != 1:
        sys.exit(f"{arguments.records}: {len(settings)} clusters and meshes, allowed: records of one")
    latency(records, arguments.output / "step_latency.svg", arguments.kind)
    timeline(records, arguments.output / "step_timeline.svg", arguments.model, arguments.kind)


if __name__ == "__main__":
    main()
