#!/usr/bin/env python3
"""Markdown table of another producer's times beside ssmbench's own, for cases that both got right.

FILE is an interchange file that an exporter wrote with --time, CHECK the records of
`ssmbench check FILE --json CHECK`, and RUN those of `ssmbench run CONFIG --json RUN` on the same cases. A time is
given only beside a pass. The ratio is that of the cold times, the producer's over ssmbench's; "% of peak", which RUN
has where the device is calibrated, the least time that the device can take over the cold time, and what binds there.
"""

import argparse
import sys

import h5py
from run_records import described, median, records, worst


def cells(name, status, error, times, peer, roofline):
    """The columns from the implementation on; `times` are hot and cold, `peer` the producer's cold time."""
    hot, cold = times if status == "pass" else (None, None)
    ratio = f"{peer / cold:.2f}" if peer and cold else ""
    fraction = f"{roofline['floor_ms'] / cold:.0%} {roofline['bound']}" if roofline and cold else ""
    error = "" if error is None else f"{error:.3f}"
    return [name, status, error, *("" if ms is None else f"{ms:.4f}" for ms in (hot, cold)), ratio, fraction]


def rows(file, checks, runs):
    """Of each case the producer's row and those of ssmbench's implementations."""
    name = file.attrs["producer"].split()[0]
    for case_id, check in checks.items():
        own = [run for run in runs if run["id"] == case_id and run["status"] != "skip"]
        attributes = file[f"cases/{case_id}"].attrs
        times = [attributes.get(f"timing_{kind}_median_ms") for kind in ("hot", "cold")]
        case = described(own[0]) if own else [case_id, "", ""]
        roofline = next((run["roofline"] for run in own if run.get("roofline")), None)
        yield case + cells(name, check["status"], worst(check["outputs"]), times, None, roofline)
        peer = times[1] if check["status"] == "pass" else None
        for run in own:
            error = worst(run.get("verify", {}).get("outputs", {}))
            times_of_run = [median(run, kind) for kind in ("hot", "cold")]
            yield case + cells(run["impl"], run["status"], error, times_of_run, peer, run.get("roofline"))


def main():
    example = "Example: scripts/comparison_table.py cases.h5 check.jsonl run.jsonl"
    parser = argparse.ArgumentParser(description=__doc__, epilog=example)
    for name in ("FILE", "CHECK", "RUN"):
        parser.add_argument(name)
    options = parser.parse_args()
    checks = {record["id"]: record for record in records(options.CHECK, "check")}
    runs = records(options.RUN, "case")
    with h5py.File(options.FILE, "r") as file:
        print(f"{file.attrs['device']}; {file.attrs['producer']}\n")
        print("| operation | shape | dtype | kernels | status | err/tol | hot ms | cold ms | ratio | % of peak |")
        print("| --- | --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
        for row in rows(file, checks, runs):
            print("|", " | ".join(row), "|")


if __name__ == "__main__":
    try:
        main()
    except (OSError, KeyError, TypeError, ValueError) as error:
        print(f"comparison_table.py: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
