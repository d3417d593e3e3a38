#!/usr/bin/env python3
"""Loads reports in headless Chromium: page_test.py SSMBENCH. Exits with 77, for skipped, where there is none.

The results are made up here; no device measured them."""

import html.parser
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SSMBENCH = os.path.abspath(sys.argv.pop(1))
HOSTILE = '</script><script>window.hacked = 1</script><img src="x" onerror="window.hacked = 1"> & "'

# Before everything else in the page: collects what goes wrong.
WATCH = """<script>
window.problems = [];
for (const kind of ['error', 'unhandledrejection', 'securitypolicyviolation'])
  window.addEventListener(kind, (event) => problems.push(kind + ': ' + (event.message ?? event.reason ?? event.blockedURI)));
console.error = console.warn = (...what) => problems.push(what.join(' '));
</script>"""
# After everything else: leaves what there is to see, as JSON in an attribute.
LOOK = """<script>
const visible = [...document.querySelectorAll('canvas')].filter((canvas) => canvas.offsetParent);
const painted = (canvas) => {
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(pixels.buffer)).size;
};
const text = (cell) => cell.textContent;
const seen = {
  hacked: window.hacked ?? null,
  drawn: document.documentElement.dataset.drawn ?? null,
  loaded: performance.getEntriesByType('resource').map((entry) => entry.name),
  background: getComputedStyle(document.body).backgroundColor,
  headings: [...document.querySelectorAll('h2')].map(text),
  verdict: text(document.getElementById('verdict')),
  captions: [...document.querySelectorAll('figcaption')].map(text),
  colors: visible.map(painted),
  images: document.images.length,
  unlabelled: [...document.querySelectorAll('canvas:not([aria-label]), table:not(:has(caption)), th:not([scope])')].length +
    [...document.querySelectorAll('select')].filter((select) => select.labels.length === 0).length,
  unreachable: [...document.querySelectorAll('.scroll')].filter((box) => box.tabIndex !== 0).length,
  tables: Object.fromEntries([...document.querySelectorAll('table')].map((table) =>
    [text(table.caption), [...table.rows].map((row) => [...row.cells].map(text))])),
};
// Then everything that can be operated is: three values of each choice, which may bring other choices, and printing.
for (let place = 0, select; (select = document.querySelectorAll('select')[place]); ++place)
  for (const value of [...select.options].slice(0, 3).map((option) => option.value)) {
    const now = document.querySelectorAll('select')[place];
    if (![...now.options].some((option) => option.value === value)) continue;
    now.value = value;
    now.focus();
    now.dispatchEvent(new Event('change'));
    const after = document.querySelectorAll('select')[place];
    if (after.value !== value || document.activeElement !== after) problems.push('lost the choice or the focus: ' + value);
  }
for (const event of ['beforeprint', 'afterprint']) window.dispatchEvent(new Event(event));
const more = document.querySelector('section button');
more?.click();
seen.rowsAfterMore = more?.parentElement?.querySelectorAll('tbody tr').length ?? null;
seen.problems = problems;
document.body.setAttribute('data-seen', JSON.stringify(seen));
</script>"""


def find_browser():
    """On Ubuntu chromium may be there in name only, and say where to get it."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path and subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0:
            return path
    return None


BROWSER = find_browser()


class Seen(html.parser.HTMLParser):
    """What LOOK left behind."""

    def __init__(self, document):
        super().__init__()
        self.value = None
        self.feed(document)

    def handle_starttag(self, tag, attrs):
        if tag == "body":
            self.value = json.loads(dict(attrs)["data-seen"])


def case(impl, seqlen, status="pass", factor=1.0, dim=4):
    samples = [factor * seqlen * (1 + k / 1000) / 1e4 for k in range(10)]
    median = (samples[4] + samples[5]) / 2
    record = {
        "record": "case", "id": f"selective_scan_fwd-f32-b1-d{dim}-l{seqlen}-n2", "op": "selective_scan_fwd", "impl": impl,
        "device": "cuda:0", "dtype": "f32", "layout": "bdl", "method": "zoh",
        "shape": {"batch": 1, "dim": dim, "seqlen": seqlen, "dstate": 2},
        "options": {"inputs": "mamba", "values": "native", "seed": 0}, "status": status, "reason": "",
        "verify": {"outputs": {"out": {
            "max_abs": 1e-7, "rel_l2": 1e-8, "max_ulp": 1, "tolerance_ratio": factor * 0.123456, "worst_index": [0, 0, 0],
            "worst_expected": 1, "worst_got": 1, "nonfinite": 0, "judged": 4 * seqlen, "rms_ratio": 0.1, "decay_bias": None,
            "decay_bias_ratio": 0,
            "over_time": [{"first": seqlen * k // 16, "last": seqlen * (k + 1) // 16 - 1, "rms": 1e-8,
                           "tolerance_ratio": 0.123456 * (k + 1) / 16} for k in range(16)]}}},
        "work": {"bytes": 1e6 * seqlen, "exponentials": 1e6 * seqlen, "fmas": 3e6 * seqlen, "tensor_flops": 0},
        "workspace_bytes": 0, "repro": "ssmbench run test-data", "key": ""}
    if status == "pass":
        times = {"median_ms": median, "mean_ms": median, "stdev_ms": 0, "min_ms": samples[0], "max_ms": samples[-1],
                 "p5_ms": samples[0], "p95_ms": samples[-1], "p99_ms": samples[-1], "n": len(samples), "samples_ms": samples}
        record["timing"] = {"hot": times, "cold": times}
        record["roofline"] = {"floor_ms": samples[0] / 2, "bound": "dram" if seqlen > 64 else "mufu", "fraction": 0.5}
    else:
        record["reason"] = HOSTILE
        record["cause"] = "nonfinite"
        record["verify"]["outputs"]["out"]["tolerance_ratio"] = None
    return record


def convergence(method, order):
    return {"record": "study", "kind": "convergence", "method": method, "A": [-1.0, 0.0], "horizon": 8.0,
            "order": {"theoretical": order, "measured": order + 0.0123},
            "stability_limit": {"theoretical": None, "measured": None},
            "runs": [{"steps": 2 ** k, "delta": 2.0 ** -k, "discretization_error": 2.0 ** (-k * order),
                      "f32_rounding_error": 1e-7} for k in range(4, 10)]}


@unittest.skipIf(BROWSER is None, "no Chromium")
class ReportPage(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ssmbench-page-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def results(self, name, records):
        run = {"record": "run", "schema": "ssmbench-results/1", "argv": ["ssmbench", "run", HOSTILE], "started": "2026-01-01T00:00:00Z",
               "build": {"git_revision": "test"}, "devices": {"cuda:0": {"name": f"made up {HOSTILE}", "ceiling_dram_bytes_per_s": "4.2e+12",
                                      "ceiling_exponentials_per_s": "4.1e+12"}}}
        path = self.folder / name
        path.write_text("".join(json.dumps(record) + "\n" for record in [run, *records]))
        return path

    def load(self, *results, flags=()):
        """Writes the report and what the page looks like once it is loaded."""
        page = self.folder / "report.html"
        page.unlink(missing_ok=True)
        subprocess.run([SSMBENCH, "report", *results, "-o", page], check=True)
        watched = page.read_text().replace("<head>", "<head>" + WATCH, 1).replace("</body>", LOOK + "</body>")
        (self.folder / "watched.html").write_text(watched)
        loaded = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,1000", f"--user-data-dir={self.folder}/profile",
             "--virtual-time-budget=3000", "--dump-dom", *flags, f"file://{self.folder}/watched.html"],
            capture_output=True, text=True, check=True, timeout=60)
        seen = Seen(loaded.stdout).value
        self.assertIsNotNone(seen, loaded.stderr)
        self.assertEqual(seen["problems"], [])
        self.assertEqual(seen["drawn"], "true")
        self.assertEqual(seen["loaded"], [])
        self.assertEqual((seen["hacked"], seen["images"]), (None, 0))
        self.assertEqual((seen["unlabelled"], seen["unreachable"]), (0, 0))
        self.assertGreater(len(seen["colors"]), 0)
        for colors in seen["colors"]:
            self.assertGreater(colors, 10)
        return seen

    def check_cell(self, table, row, column, expected):
        header = table[0]
        self.assertAlmostEqual(float(row[header.index(column)]) / expected, 1, delta=1e-3)

    def test_several_files(self):
        cases = [case(impl, seqlen) for impl in ("cuda-a", "cuda-b") for seqlen in (64, 256, 1024)]
        slower = [case("cuda-a", seqlen, factor=1.1) for seqlen in (64, 256)] + [case("cuda-b", 64, "fail")]
        skip = {**case("cuda-c", 64, "skip"), "verify": {"outputs": {}}}
        one, two = self.results("one.jsonl", cases), self.results("two.jsonl", [*slower, skip])
        seen = self.load(one, two)
        self.assertEqual(seen["headings"], ["Summary", "Time per shape", "Scaling", "Roofline", "Error against tolerance",
                                            "Error over time steps", "Comparison of files"])
        self.assertIn("1 of 9 cases did not pass", seen["verdict"])
        self.assertEqual(seen["tables"]["Cases by status"][1:], [["one.jsonl", "selective_scan_fwd", "6", "0", "0", "0", "0", "0"],
                                                                 ["two.jsonl", "selective_scan_fwd", "2", "1", "0", "0", "0", "1"]])
        self.assertIn(HOSTILE, seen["tables"]["Cases that did not pass"][1])
        self.assertIn(f"cuda:0: made up {HOSTILE}", seen["tables"]["Results files"][1])

        times = seen["tables"]["times"]
        self.assertEqual(len(times), 1 + len(cases) + 2)
        for record in cases:
            row = next(row for row in times if row[0] == f"1×4×{record['shape']['seqlen']}×2" and f"{record['impl']} (one.jsonl)" in row)
            hot = record["timing"]["hot"]
            self.check_cell(times, row, "hot median ms", hot["median_ms"])
            self.check_cell(times, row, "hot from", hot["samples_ms"][1])  # of ten samples, the second and the ninth
            self.check_cell(times, row, "hot to", hot["samples_ms"][8])
            self.check_cell(times, row, "GB/s", record["work"]["bytes"] / hot["median_ms"] / 1e6)
        self.assertTrue(any("Roofs: cuda:0 memory 4200 GB/s, cuda:0 exponentials 4100 G/s." in each for each in seen["captions"]))
        floors = seen["tables"]["roofline fractions"]
        self.check_cell(floors, floors[1], "floor ms", cases[0]["roofline"]["floor_ms"])
        errors = seen["tables"]["errors"]
        self.check_cell(errors, next(row for row in errors if "cuda-a (two.jsonl)" in row), "Largest err/tol", 1.1 * 0.123456)
        self.assertTrue(any("not finite" in row for row in errors))
        self.assertEqual(len(seen["tables"]["errors over time"]), 1 + 16)
        pairs = seen["tables"]["all cases that the files have in common"]
        self.assertEqual(len(pairs), 1 + len(slower))
        self.check_cell(pairs, next(row for row in pairs if row[0].startswith("cuda-a")), "ratio", 1.1)
        self.assertEqual(seen["tables"]["Cases whose status changed"][1][2:4], ["✓ pass", "✗ fail"])
        self.assertIn("nonfinite", seen["tables"]["Cases that did not pass"][1])

    def test_teams(self):
        one = {**case("cpu-simd", 1024), "device": "cpu"}
        team = {**case("cpu-rerun", 1024, factor=0.625), "device": "cpu*2", "wire_bytes": 24.0, "rerun_steps": 128,
                "team": [{"rank": 0, "median_ms": 1.0}, {"rank": 1, "median_ms": 2.0}],
                "scaling": {"impl": "cpu-simd", "ms_one": 0.1, "speedup": 1.6, "efficiency": 0.8}}
        team["timing"] = {**team["timing"], "exchange": {**team["timing"]["hot"], "median_ms": 0.25}}
        wider = {**team, "device": "cpu*4", "scaling": {**team["scaling"], "speedup": 3.0, "efficiency": 0.75}}
        seen = self.load(self.results("teams.jsonl", [one, wider, team]))
        self.assertIn("Teams of ranks", seen["headings"])
        rows = seen["tables"]["teams"]
        self.assertEqual([row[rows[0].index("Ranks")] for row in rows[1:]], ["2", "4"])
        self.check_cell(rows, rows[1], "Speed-up", 1.6)
        self.check_cell(rows, rows[2], "Speed-up", 3.0)
        self.check_cell(rows, rows[1], "Exchange ms", 0.25)
        self.check_cell(rows, rows[1], "Steps twice", 128)
        self.assertEqual(rows[1][rows[0].index("Efficiency")], "80.0%")
        self.assertEqual(rows[1][rows[0].index("Over")], "cpu-simd")

    def test_dark_and_many_cases(self):
        many = [case(f"cuda-{k % 3}", 2 ** (k // 3 % 10 + 6), dim=4 + k // 30) for k in range(3000)]
        seen = self.load(self.results("many.jsonl", many), flags=["--blink-settings=preferredColorScheme=0"])
        red, green, blue = (int(part) for part in seen["background"].strip("rgb()").split(","))
        self.assertLess(max(red, green, blue), 60)
        self.assertIn("All 3000 cases passed", seen["verdict"])
        self.assertEqual(len(seen["tables"]["times"]), 1 + 200)
        self.assertEqual(seen["rowsAfterMore"], 400)
        self.assertLess((self.folder / "report.html").stat().st_size, 8e6)

    def test_convergence(self):
        seen = self.load(self.results("study.jsonl", [convergence("zoh", 1), convergence("rk4", 4)]))
        self.assertEqual(seen["headings"], ["Summary", "Convergence of the methods"])
        rows = seen["tables"]["Orders and stability limits, A = -1"]
        self.assertEqual(rows[1][:5], ["zoh", "1", "1.012", "none", "none"])
        self.assertEqual(rows[2][:3], ["rk4", "4", "4.012"])


if __name__ == "__main__":
    program = unittest.main(exit=False)
    if BROWSER is None:
        print("skipped: no Chromium")
        sys.exit(77)
    sys.exit(not program.result.wasSuccessful())
