#!/usr/bin/env python3
"""Checks that every #include "..." of src, kernels and reference points down the ladder of folders below.

check_layers.py [ROOT] prints FILE:LINE of each include that does not, and exits with 1 if there is one.
"""

import pathlib
import re
import sys

# From the bottom up. A folder includes what is on a lower step, and nothing beside it.
STEPS = (
    "base",
    "model",
    "inputs",  # how values are drawn, for operations to fill their inputs
    "ops",
    "reference kernels",
    "record device",  # device: memory, streams and clocks of what implementations run on
    "team bench verify interchange config plugin library",
    "check",  # judges files of others: a step above verify and interchange, of which it is made
    "sweep study gate report html",
    "supervise",
    "launch",
    "cli",
    "main.cpp",
)
# Edges within a step, each in one direction only, and what is outside of the ladder.
ALSO_ALLOWED = {
    ("study", "sweep"): "a study plans its cases, and runs an implementation once, as a sweep does",
    ("report", "gate"): "what a gate found has formats as what a run found has",
    ("html", "report"): "the page names cases and options as the tables do",
    ("plugin", "plugins"): "the C interface that plugins are compiled with",
    ("library", "plugins"): "the same interface, which the library of all kernels exports",
}

RANK = {layer: rank for rank, layers in enumerate(STEPS) for layer in layers.split()}
INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}


def layer_of(path):
    """The folder that a path belongs to: below src the second part of its name, elsewhere the first."""
    parts = path.parts
    return parts[1] if parts[0] == "src" else parts[0]


def includes(root):
    """(file, line, included file) of every include that is found in this tree; paths are relative to it."""
    for top in ("src", "kernels", "reference"):
        for path in sorted(p for p in (root / top).rglob("*") if p.suffix in SUFFIXES):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if match := INCLUDE.match(line):
                    named = pathlib.PurePosixPath(match[1])
                    for included in ("src" / named, named):
                        if (root / included).is_file():
                            yield path.relative_to(root), number, included
                            break


def complaint(here, there):
    """What is wrong with an include from one folder of another; None if nothing is."""
    if here == there or (here, there) in ALSO_ALLOWED:
        return None
    if unknown := [layer for layer in (here, there) if layer not in RANK]:
        return f"{unknown[0]} is on no step of the ladder in scripts/check_layers.py"
    if RANK[there] < RANK[here]:
        return None
    return f"{here} must not include {there}, which is {'above' if RANK[there] > RANK[here] else 'beside'} it"


def main(root):
    wrong = 0
    for path, number, included in includes(root):
        if what := complaint(layer_of(path), layer_of(included)):
            print(f"{path}:{number}: {what}")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])))
