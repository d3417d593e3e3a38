#!/usr/bin/env python3
"""Arrivals on mbarriers that may overtake loads from shared memory.

    cuobjdump -sass build/ssmbench | scripts/early_arrivals.py [REGEX]

reads machine code of Hopper and prints, for functions whose name matches, each SYNCS.ARRIVE with loads
before it that no instruction has waited for. The hardware does not hold an arrival back for them: where it
hands a slot of a ring back, the next copy into the slot can be what they read. Loads of something else than
the slot are no error. A function is read basic block by basic block, in the order of its code, so that a load
from before a branch is not seen.
"""

import re
import sys

INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,6})\*/\s+(.*?)\s*;\s+/\* 0x[0-9a-f]{16} \*/")
CONTROL = re.compile(r"^\s+/\* (0x[0-9a-f]{16}) \*/")
ENDS_OF_BLOCKS = ("BRA", "EXIT", "BSYNC", "WARPSYNC", "RET", "BAR")
NO_SCOREBOARD = 7


def instructions(lines):
    """(function, address, text, scoreboard that it signals or 7, mask of those that it waits for)"""
    function, found = None, None
    for line in lines:
        if "Function : " in line:
            function = line.split(" : ")[1].strip()
        elif match := INSTRUCTION.search(line):
            found = match.groups()
        elif found and (match := CONTROL.match(line)):
            control = int(match[1], 16) >> 41
            yield function, *found, control >> 5 & 7, control >> 11 & 0x3F
            found = None


def main():
    wanted = re.compile(sys.argv[1] if len(sys.argv) > 1 else "")
    function, loads, shown = None, [], None
    for name, address, text, signals, waits in instructions(sys.stdin):
        if name != function:
            function, loads = name, []
        # Loads come back in order: with the last one that signals the scoreboard, all before it are there.
        awaited = [i for i, load in enumerate(loads) if load[0] != NO_SCOREBOARD and waits >> load[0] & 1]
        if awaited:
            del loads[: awaited[-1] + 1]
        operation = text.split()[text.startswith("@")]
        if operation.startswith("LDS"):
            loads.append((signals, address, text))
        elif operation.startswith("SYNCS.ARRIVE") and "A1T0" in operation and loads and wanted.search(name):
            if shown != name:
                print(name)
                shown = name
            print(f"  {address} {text}")
            for _, at, load in loads:
                print(f"      {at} {load}")
        elif operation.startswith(ENDS_OF_BLOCKS):
            loads = []


if __name__ == "__main__":
    main()
