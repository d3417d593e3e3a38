#!/usr/bin/env python3
"""Draws results/h200/mamba_ssm.svg, the picture of the README, from the tables of results/h200/mamba_ssm.md.

Each row is a shape: the roofline floor, the time of cuda-fused and that of mamba_ssm less its copy, on a logarithmic
axis. Gradients are shown with the forward pass in front, since mamba_ssm's times have it in them.
With --check nothing is written; the exit status is 1 where the picture is not what the tables say.
"""

import argparse
import math
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "results" / "h200"
PANELS = {"selective_scan_fwd": "forward", "selective_scan_bwd": "forward and gradients"}
DTYPES = ("bf16", "f32")

LEFT, PANEL, GAP, TOP, ROW, BOTTOM = 108, 340, 24, 78, 22, 46
COLOURS = {"floor": "#57606a", "cuda-fused": "#0969da", "mamba-ssm": "#cf222e"}


def read_times(text):
    """{(operation, dtype): {shape: {"mamba-ssm", "cuda-fused", "floor": ms}}}, cold, in the table's order."""
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        operation = cells[0].strip("`")
        percent = re.match(r"(\d+)% ", cells[-1])
        if operation not in PANELS or percent is None:
            continue
        shape, dtype, kernels, cold, copy = cells[1], cells[2], cells[3], float(cells[7]), cells[8]
        by_kernels = rows.setdefault((operation, dtype), {}).setdefault(shape, {})
        by_kernels[kernels] = cold - float(copy or 0)
        if kernels == "cuda-fused":  # its percentage is the larger one, so that rounding matters less
            by_kernels["floor"] = cold * int(percent[1]) / 100
    forward, gradients = PANELS
    for dtype in DTYPES:
        for shape, times in rows[gradients, dtype].items():
            for kernels in ("cuda-fused", "floor"):
                times[kernels] += rows[forward, dtype][shape][kernels]
    return rows


def short(shape):
    """8×2048×2048 for "batch 8, dim 2048, seqlen 2048, dstate 16"."""
    return "×".join(re.findall(r"\d+", shape)[:3])


def text(x, y, words, anchor="start", size=12, colour="#24292f", extra=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{extra}>'
            f"{words}</text>")


def draw(times):
    every = [ms for shapes in times.values() for marks in shapes.values() for ms in marks.values()]
    low, high = math.log10(min(every) * 0.8), math.log10(max(every) * 1.25)

    def across(panel, ms):
        return LEFT + panel * (PANEL + GAP) + (math.log10(ms) - low) / (high - low) * PANEL

    rows_of_panel = sum(len(times[next(iter(PANELS)), dtype]) + 1 for dtype in DTYPES)
    width = LEFT + 2 * PANEL + GAP + 16
    height = TOP + rows_of_panel * ROW + BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif">',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
           text(16, 24, "Selective scan on one NVIDIA H200: milliseconds, L2 flushed, medians", size=15)]
    legend = {"floor": "roofline floor", "cuda-fused": "cuda-fused", "mamba-ssm": "mamba_ssm 2.3.2"}
    for i, (kernels, words) in enumerate(legend.items()):
        x = 21 + 130 * i
        out += [mark(kernels, x, 44), text(x + 11, 48, words)]
    for panel, (operation, title) in enumerate(PANELS.items()):
        left = LEFT + panel * (PANEL + GAP)
        out.append(text(left + PANEL / 2, TOP - 10, title, "middle", 13))
        bottom = height - BOTTOM
        for exponent in range(math.ceil(low), math.floor(high) + 1):
            x = across(panel, 10.0**exponent)
            out += [f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#d0d7de"/>',
                    text(x, bottom + 16, f"{10.0 ** exponent:g}", "middle", 11)]
        y = TOP + ROW / 2
        for dtype in DTYPES:
            if panel == 0:
                out.append(text(16, y + 4, dtype, extra=' font-weight="bold"'))
            y += ROW
            for shape in times[next(iter(PANELS)), dtype]:
                if panel == 0:
                    out.append(text(LEFT - 8, y + 4, short(shape), "end", 11))
                marks = {kernels: across(panel, ms) for kernels, ms in times[operation, dtype].get(shape, {}).items()}
                if marks:
                    out.append(f'<line x1="{min(marks.values()):.1f}" y1="{y:.1f}" x2="{max(marks.values()):.1f}" '
                               f'y2="{y:.1f}" stroke="#afb8c1" stroke-width="2"/>')
                out += [mark(kernels, x, y) for kernels, x in marks.items()]
                y += ROW
    out += [text(16, height - 10, "batch×dim×seqlen, 16 states, D, z, bias and softplus. Floor: roofline "
                 "fraction of cuda-fused times its time.", size=11, colour="#57606a"), "</svg>"]
    return "\n".join(out) + "\n"


def mark(kernels, x, y):
    if kernels == "floor":
        return (f'<line x1="{x:.1f}" y1="{y - 6:.1f}" x2="{x:.1f}" y2="{y + 6:.1f}" '
                f'stroke="{COLOURS[kernels]}" stroke-width="2"/>')
    fill = COLOURS[kernels] if kernels == "cuda-fused" else "#ffffff"
    return (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{fill}" '
            f'stroke="{COLOURS[kernels]}" stroke-width="2"/>')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    picture = draw(read_times((FOLDER / "mamba_ssm.md").read_text(encoding="utf-8")))
    file = FOLDER / "mamba_ssm.svg"
    if not arguments.check:
        file.write_text(picture, encoding="utf-8")
    elif not file.exists() or file.read_text(encoding="utf-8") != picture:
        sys.exit(f"{file.name} is not what mamba_ssm.md says; scripts/plot_results.py draws it again")


if __name__ == "__main__":
    main()
