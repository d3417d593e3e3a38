"""Records of `ssmbench run` and `check`, for tables."""

import json


def records(path, kind):
    with open(path) as lines:
        return [record for record in map(json.loads, lines) if record["record"] == kind]


def worst(outputs):
    """Of the ratios, where null is one that is not finite."""
    ratios = (output["tolerance_ratio"] for output in outputs.values())
    return max((float("inf") if ratio is None else ratio for ratio in ratios), default=None)


def described(run):
    usual = {"groups": 1, "sequences": 1, "states_at": 0}
    shape = {name: size for name, size in run["shape"].items() if usual.get(name) != size}
    sizes = ", ".join(f"{name} {size}" for name, size in shape.items())
    return [f"`{run['op']}`", sizes, run["dtype"]]


def median(record, kind):
    return record.get("timing", {}).get(kind, {}).get("median_ms")
