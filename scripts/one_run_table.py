#!/usr/bin/env python3
"""Markdown table of peers and ssmbench's implementations that ran in one process, in turns.

RUN are the records of `ssmbench run CONFIG --plugin PEER.py --json RUN`, and --copies what copying the peers' results
takes, which is in their times (copy_times.py). Times are given beside a pass alone. The ratio is that of a peer's cold
time, less the copy, to the cold time of the fastest of ssmbench's. A peer's backward pass has a forward pass in its
time, so that its ratio is to both passes of ssmbench's. "% of peak" is the least time that the device can take, over
the cold time, and what binds there.
"""

import argparse
import sys

from run_records import described, median, records, worst

HEAD = ("operation", "shape", "dtype")
COLUMNS = ("kernels", "status", "err/tol", "hot ms", "cold ms", "copy ms", "ratio", "% of peak")


def agree(some, others):
    return all(some[name] == others[name] for name in some.keys() & others.keys())


def time_of(run, kind):
    return median(run, kind) if run["status"] == "pass" else None


def both_passes(run, runs):
    """The cold time of a pass, of a backward pass with that of its forward pass."""
    own = time_of(run, "cold")
    if not run["op"].endswith("_bwd"):
        return own
    op = run["op"].replace("_bwd", "_fwd")
    for other in runs:
        is_same = other["op"] == op and all(run.get(key) == other.get(key) for key in ("impl", "dtype", "method", "layout"))
        if is_same and all(agree(run[key], other[key]) for key in ("shape", "options")):
            forward = time_of(other, "cold")
            return own + forward if own and forward else None
    return None


def copy_of(run, copies):
    axes = {**run["options"], **run["shape"], "dtype": run["dtype"]}
    return next((copy["cold_ms"] for copy in copies if copy["op"] == run["op"] and agree(axes, copy["axes"])), None)


def number(value, digits):
    return "" if value is None else f"{value:.{digits}f}"


def row(run, options, copy, ratio):
    error = worst(run.get("verify", {}).get("outputs", {}))
    hot, cold = time_of(run, "hot"), time_of(run, "cold")
    roofline = run.get("roofline")
    fraction = f"{roofline['floor_ms'] / cold:.0%} {roofline['bound']}" if roofline and cold else ""
    return [*described(run), *(str(run["options"].get(name, "")) for name in options), run["impl"], run["status"],
            number(error, 3), number(hot, 4), number(cold, 4), number(copy, 4), number(ratio, 2), fraction]


def rows(runs, copies, peers, options):
    for case_id in dict.fromkeys(run["id"] for run in runs):
        of_case = [run for run in runs if run["id"] == case_id]
        own = [run for run in of_case if run["impl"] not in peers]
        fastest = min(filter(None, (both_passes(run, runs) for run in own)), default=None)
        for run in of_case:
            copy, ratio = None, None
            if run["impl"] in peers:
                copy, cold = copy_of(run, copies), time_of(run, "cold")
                ratio = (cold - (copy or 0)) / fastest if cold and fastest else None
            yield row(run, options, copy, ratio)


def main():
    example = "Example: scripts/one_run_table.py run.jsonl --copies copies.jsonl --options z"
    parser = argparse.ArgumentParser(description=__doc__, epilog=example)
    parser.add_argument("RUN", nargs="+")
    parser.add_argument("--copies", help="what SSMBENCH_COPY_TIMES named; without it nothing is subtracted")
    parser.add_argument("--peers", default="mamba-ssm,flashinfer", help="implementations that are not ssmbench's")
    parser.add_argument("--options", default="", help="a column for each of these axes")
    arguments = parser.parse_args()
    options = [name for name in arguments.options.split(",") if name]
    runs = [run for path in arguments.RUN for run in records(path, "case") if run["status"] != "skip"]
    copies = records(arguments.copies, "copy") if arguments.copies else []
    print("|", " | ".join((*HEAD, *options, *COLUMNS)), "|")
    print("|" + " --- |" * (len(HEAD) + len(options) + 2) + " ---: |" * (len(COLUMNS) - 2))
    for cells in rows(runs, copies, arguments.peers.split(","), options):
        print("|", " | ".join(cells), "|")


if __name__ == "__main__":
    try:
        main()
    except (OSError, KeyError, TypeError, ValueError) as error:
        print(f"one_run_table.py: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
