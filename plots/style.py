"""What all figures share: colours, sizes, and how a figure is written."""

import json
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

# Okabe and Ito's palette: tells apart for every kind of colour vision.
STRATEGIES = {
    "synchronous": "#999999",
    "layerwise": "#E69F00",
    "layerwise-lpt": "#CC79A7",
    "static": "#56B4E9",
    "canzona": "#009E73",
}
OTHER_STRATEGY = "#0072B2"

plt.rcParams.update(
    {
        "font.size": 8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "canzona",  # equal records, equal file
        "figure.constrained_layout.use": True,
    }
)


def strategies_in(records):
    """The published five in their order, then any other by name."""
    found = {record["strategy"] for record in records}
    return [name for name in STRATEGIES if name in found] + sorted(found - STRATEGIES.keys())


def colour_of(strategy):
    return STRATEGIES.get(strategy, OTHER_STRATEGY)


def mesh_of(record):
    return f"dp {record['mesh']['dp']} × tp {record['mesh']['tp']}"


def by_size(records):
    """Model names by their number of parameters, read from the name where the record does not hold it."""
    sizes = {}
    for record in records:
        name = record["model"]
        digits = name.rsplit("-", 1)[-1].rstrip("b")
        sizes[name] = record["parameters"]["total"] if "parameters" in record else float(digits) if digits.replace(".", "").isdigit() else 0
    return sorted(sizes, key=sizes.get)


def read_records(folder, optimizer, kind):
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    records = [record for record in records if record["optimizer"] == optimizer]
    if not records:
        sys.exit(f"{folder}: no records of {optimizer}; run 'canzona reproduce' first")
    others = {record["kind"] for record in records} - {kind}
    if others:
        sys.exit(f"{folder}: records of kind {', '.join(sorted(others))}, allowed: {kind}")
    return records


def save(figure, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    print(path)
