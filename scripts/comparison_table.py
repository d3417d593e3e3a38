#!/usr/bin/env python3
"""Markdown table of another producer's times beside ssmbench's own, for cases that both got right.

FILE is an interchange file that an exporter wrote with --time, CHECK the records of
`ssmbench check FILE --json CHECK`, and RUN those of `ssmbench run CONFIG --json RUN` on the same cases. A time is
given only beside a pass.
"""

import argparse
import json
import sys

import h5py


def records(path, kind):
    with open(path) as lines:
        return [record for record in map(json.loads, lines) if record["record"] == kind]


def worst(outputs):
    return max((output["tolerance_ratio"] for output in outputs.values()), default=None)


def row(case, implementation, status, ratio, hot, cold):
    shown = [f"{value:.4f}" if value is not None and status == "pass" else "" for value in (hot, cold)]
    ratio = "" if ratio is None else f"{ratio:.3f}"
    print("|", " | ".join([case, implementation, status, ratio, *shown]), "|")


def median(record, kind):
    return record.get("timing", {}).get(kind, {}).get("median_ms")


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
        print("| case | implementation | status | err/tol | hot ms | cold ms |")
        print("| --- | --- | --- | ---: | ---: | ---: |")
        name = file.attrs["producer"].split()[0]
        for case_id in checks:
            check, attributes = checks[case_id], file[f"cases/{case_id}"].attrs
            times = (attributes.get(f"timing_{kind}_median_ms") for kind in ("hot", "cold"))
            row(case_id, name, check["status"], worst(check["outputs"]), *times)
            for run in (run for run in runs if run["id"] == case_id and run["status"] != "skip"):
                ratio = worst(run.get("verify", {}).get("outputs", {}))
                row(case_id, run["impl"], run["status"], ratio, median(run, "hot"), median(run, "cold"))


if __name__ == "__main__":
    try:
        main()
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"comparison_table.py: {error}")
