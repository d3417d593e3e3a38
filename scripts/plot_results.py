#!/usr/bin/env python3
"""Draws the pictures of results/h200 from the tables of the pages that they are in, on logarithmic axes.

mamba_ssm.svg, the picture of the README: each row is a shape, with the roofline floor, the time of cuda-fused
and that of mamba_ssm less its copy. Gradients are shown with the forward pass in front, since mamba_ssm's
times have it in them.
scale-out.svg: each row is a way of passing states between GPUs, with its time on one, two and four of them.
With --check nothing is written; the exit status is 1 where a picture is not what the tables say.
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
COLOURS = {"floor": "#57606a", "cuda-fused": "#0969da", "mamba-ssm": "#cf222e", "ssmbench": "#0969da",
           "mamba_ssm": "#cf222e"}


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


class Axis:
    """A logarithmic axis of milliseconds, the same in all panels."""

    def __init__(self, every):
        self.low, self.high = math.log10(min(every) * 0.8), math.log10(max(every) * 1.25)

    def across(self, panel, ms):
        return LEFT + panel * (PANEL + GAP) + (math.log10(ms) - self.low) / (self.high - self.low) * PANEL

    def draw(self, panel, title, bottom):
        out = [text(LEFT + panel * (PANEL + GAP) + PANEL / 2, TOP - 10, title, "middle", 13)]
        for exponent in range(math.ceil(self.low), math.floor(self.high) + 1):
            x = self.across(panel, 10.0**exponent)
            out += [f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#d0d7de"/>',
                    text(x, bottom + 16, f"{10.0 ** exponent:g}", "middle", 11)]
        return out


def frame(title, rows, legend):
    """The height of a picture of so many rows, and what is above its panels; `legend`: {words: a mark at (x, y)}."""
    width, height = LEFT + 2 * PANEL + GAP + 16, TOP + rows * ROW + BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif">',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>', text(16, 24, title, size=15)]
    for i, (words, mark_at) in enumerate(legend.items()):
        x = 21 + 130 * i
        out += [mark_at(x, 44), text(x + 11, 48, words)]
    return height, out


def marks_of_row(marks, y):
    """`marks`: {x: a mark at (x, y)}."""
    out = []
    if marks:
        out.append(f'<line x1="{min(marks):.1f}" y1="{y:.1f}" x2="{max(marks):.1f}" y2="{y:.1f}" '
                   f'stroke="#afb8c1" stroke-width="2"/>')
    return out + [mark_at(x, y) for x, mark_at in marks.items()]


def end_of(height, words):
    return [text(16, height - 10, words, size=11, colour="#57606a"), "</svg>"]


def draw_scans(times):
    axis = Axis([ms for shapes in times.values() for marks in shapes.values() for ms in marks.values()])
    marks = {"floor": tick, "cuda-fused": disc(COLOURS["cuda-fused"]), "mamba-ssm": circle(COLOURS["mamba-ssm"])}
    legend = {"floor": "roofline floor", "cuda-fused": "cuda-fused", "mamba-ssm": "mamba_ssm 2.3.2"}
    height, out = frame("Selective scan on one NVIDIA H200: milliseconds, L2 flushed, medians",
                        sum(len(times[next(iter(PANELS)), dtype]) + 1 for dtype in DTYPES),
                        {words: marks[kernels] for kernels, words in legend.items()})
    for panel, (operation, title) in enumerate(PANELS.items()):
        out += axis.draw(panel, title, height - BOTTOM)
        y = TOP + ROW / 2
        for dtype in DTYPES:
            if panel == 0:
                out.append(text(16, y + 4, dtype, extra=' font-weight="bold"'))
            y += ROW
            for shape in times[next(iter(PANELS)), dtype]:
                if panel == 0:
                    out.append(text(LEFT - 8, y + 4, short(shape), "end", 11))
                out += marks_of_row({axis.across(panel, ms): marks[kernels]
                                     for kernels, ms in times[operation, dtype].get(shape, {}).items()}, y)
                y += ROW
    return out + end_of(height, "batch×dim×seqlen, 16 states, D, z, bias and softplus. Floor: roofline "
                        "fraction of cuda-fused times its time.")


def read_teams(page):
    """{steps: {(kernels, way): {GPUs: ms}}} of the section about mamba_ssm, in the table's order."""
    rows = {}
    section = page.partition("## SSD beside mamba_ssm")[2].partition("\n## ")[0]
    for line in section.splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if cells[0] in ("ssmbench", "mamba_ssm"):
            kernels, way, steps, *ms = cells
            rows.setdefault(steps, {})[kernels, way] = {
                gpus: float(cell) for gpus, cell in zip((1, 2, 4), ms) if cell}
    return rows


def draw_teams(times):
    axis = Axis([ms for ways in times.values() for of_gpus in ways.values() for ms in of_gpus.values()])
    ways = list(dict.fromkeys(way for of_steps in times.values() for way in of_steps))
    grey = COLOURS["floor"]
    height, out = frame("SSD by several NVIDIA H200: milliseconds, L2 flushed, medians", len(ways) + 2,
                        {"one GPU": tick, "two": disc(grey), "four": circle(grey)})
    for panel, (steps, of_steps) in enumerate(times.items()):
        out += axis.draw(panel, f"{steps} steps", height - BOTTOM)
        y, above = TOP + ROW / 2, None
        for kernels, way in ways:
            if kernels != above:
                if panel == 0:
                    out.append(text(16, y + 4, kernels, colour=COLOURS[kernels], extra=' font-weight="bold"'))
                y, above = y + ROW, kernels
            if panel == 0:
                out.append(text(LEFT - 8, y + 4, way.removeprefix("nccl-"), "end", 11))
            marks = {1: tick, 2: disc(COLOURS[kernels]), 4: circle(COLOURS[kernels])}
            out += marks_of_row({axis.across(panel, ms): marks[gpus]
                                 for gpus, ms in of_steps.get((kernels, way), {}).items()}, y)
            y += ROW
    return out + end_of(height, "batch 1, 80 heads of 64, 128 states, bf16, D, z, bias and softplus.")


def tick(x, y):
    return (f'<line x1="{x:.1f}" y1="{y - 6:.1f}" x2="{x:.1f}" y2="{y + 6:.1f}" '
            f'stroke="{COLOURS["floor"]}" stroke-width="2"/>')


def disc(colour, fill=None):
    return lambda x, y: (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{fill or colour}" '
                         f'stroke="{colour}" stroke-width="2"/>')


def circle(colour):
    return disc(colour, "#ffffff")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    for page, draw in (("mamba_ssm", lambda page: draw_scans(read_times(page))),
                       ("scale-out", lambda page: draw_teams(read_teams(page)))):
        picture = "\n".join(draw((FOLDER / f"{page}.md").read_text(encoding="utf-8"))) + "\n"
        file = FOLDER / f"{page}.svg"
        if not arguments.check:
            file.write_text(picture, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != picture:
            sys.exit(f"{file.name} is not what {page}.md says; scripts/plot_results.py draws it again")


if __name__ == "__main__":
    main()
