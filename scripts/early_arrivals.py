#!/usr/bin/env python3
"""Arrivals on mbarriers that may overtake loads from shared memory.

    cuobjdump -sass build/ssmbench | scripts/early_arrivals.py [REGEX]

reads machine code of Hopper and prints, for functions whose name matches, each SYNCS.ARRIVE with loads
before it that no instruction has waited for. The hardware does not hold an arrival back for them: where it
hands a slot of a ring back, the next copy into the slot can be what they read. No errors are loads of
something else than the slot, and loads whose values are not used. Branches are followed wherever they may go:
two on one condition also count as if one were taken and the other not.
"""

import collections
import re
import sys

INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,6})\*/\s+(.*?)\s*;\s+/\* 0x[0-9a-f]{16} \*/")
CONTROL = re.compile(r"^\s+/\* (0x[0-9a-f]{16}) \*/")
CONDITION = re.compile(r"^BRA(\.U)? !?U?P\d")
BARRIER = re.compile(r"\b(B\d+)(?:, (0x[0-9a-f]+))?")
NO_SCOREBOARD = 7

# `signals`: a scoreboard, or NO_SCOREBOARD; `waits`: a mask of them.
Instruction = collections.namedtuple("Instruction", "address text predicated signals waits")


def functions(lines):
    """(name, instructions) of each function."""
    name, code, found = None, [], None
    for line in lines:
        if "Function : " in line:
            if name:
                yield name, code
            name, code = line.split(" : ")[1].strip(), []
        elif match := INSTRUCTION.search(line):
            found = match.groups()
        elif found and (match := CONTROL.match(line)):
            control = int(match[1], 16) >> 41
            predicated = found[1].startswith("@")
            text = found[1].split(None, 1)[1] if predicated else found[1]
            waits = control >> 11 & 0x3F
            if match := re.match(r"DEPBAR.LE SB(\d), 0x0", text):
                waits |= 1 << int(match[1])
            code.append(Instruction(int(found[0], 16), text, predicated, control >> 5 & 7, waits))
            found = None
    if name:
        yield name, code


def successors(code):
    """Per instruction the indices of those that may follow."""
    index_of = {instruction.address: i for i, instruction in enumerate(code)}
    last = len(code) - 1
    # A jump by a table goes to code behind a jump.
    jump = re.compile(r"EXIT|RET|BRX|BRA 0x")
    entries = [i + 1 for i in range(last) if not code[i].predicated and jump.match(code[i].text)]
    meeting_points = {}
    found = []
    for i, instruction in enumerate(code):
        text = instruction.text
        follow = [i + 1] if i < last else []
        to = []
        falls_through = instruction.predicated
        if text.startswith("BRA"):
            to = [index_of.get(int(re.findall(r"0x[0-9a-f]+", text)[-1], 16))]
            falls_through = falls_through or text.startswith("BRA.DIV") or CONDITION.match(text)
        elif text.startswith("BSYNC"):
            to = [index_of.get(meeting_points.get(BARRIER.search(text)[1]), i + 1)]
        elif text.startswith("BRX"):
            to = entries
        elif not text.startswith(("EXIT", "RET")):
            falls_through = True
            if text.startswith("BSSY") and (match := BARRIER.search(text)):
                meeting_points[match[1]] = int(match[2], 16)
        found.append([j for j in to if j is not None and j <= last] + (follow if falls_through else []))
    return found


def loads_behind(code, i, loads):
    """Loads under way behind an instruction: their indices, and the scoreboards that say they are there."""
    instruction = code[i]
    loads = {load for load in loads if not load[1] & instruction.waits}
    # Loads and shuffles come back in order: with one that signals a scoreboard, all before it are there.
    if instruction.text.startswith(("LDS", "SHFL")):
        signal = 0 if instruction.signals == NO_SCOREBOARD else 1 << instruction.signals
        loads = {(j, signals | signal) for j, signals in loads}
        if instruction.text.startswith("LDS"):
            loads.add((i, signal))
    return loads


def loads_before(code):
    """Per instruction the loads under way before it, on any way to it."""
    follow = successors(code)
    before = [None] * len(code)
    before[0] = set()
    todo = collections.deque([0])
    while todo:
        i = todo.popleft()
        behind = loads_behind(code, i, before[i])
        for j in follow[i]:
            if before[j] is None:
                before[j] = set()
            elif behind <= before[j]:
                continue
            before[j] |= behind
            todo.append(j)
    return before


def main():
    wanted = re.compile(sys.argv[1] if len(sys.argv) > 1 else "")
    for name, code in functions(sys.stdin):
        if not code or not wanted.search(name):
            continue
        before = loads_before(code)
        shown = False
        for i, instruction in enumerate(code):
            if not re.match(r"SYNCS\.ARRIVE\S*\.A1T0", instruction.text) or not before[i]:
                continue
            loads = loads_behind(code, i, before[i])
            if loads and not shown:
                print(name)
                shown = True
            if loads:
                print(f"  {instruction.address:04x} {instruction.text}")
            for j in sorted({j for j, _ in loads}):
                print(f"      {code[j].address:04x} {code[j].text}")


if __name__ == "__main__":
    main()
