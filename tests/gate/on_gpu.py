#!/usr/bin/env python3
"""Gates on a GPU, for real: on_gpu.py SSMBENCH [SECONDS]

Builds the example plugin in CUDA twice, once so that it wastes steps until it takes 5% longer, runs both again and again,
each time in a new process, and gates every two of the results files. The same code must be SLOWER in at most 1 of 100,
and what was slowed must be in at least 95. Prints what was found, and how much processes and samples differ; exits with
1 when it is not so. Needs nvcc."""

import itertools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOOP = "  for (int64_t t = 0; t < p.seqlen; ++t) {\n"
# The steps before the first are wasted: states start again at 0, and outputs are written again.
SLOWED_LOOP = """  for (int64_t i = -WASTED_STEPS; i < p.seqlen; ++i) {
    const int64_t t = i < 0 ? -i : i;
    if (i == 0)
      for (int64_t n = 0; n < p.dstate; ++n)
        p.states[n * rows + row] = p.initial != nullptr ? p.initial[row * p.dstate + n] : 0.0F;
"""
CONFIG = {"format": "ssmbench-config/1", "sweeps": [
    {"op": "selective_scan_fwd", "axes": {"batch": [2, 16], "dim": 1024, "seqlen": 960, "dstate": 16, "dtype": "f32"}}]}


def build_plugin(folder, wasted_steps):
    text = (ROOT / "plugins/example_cuda/example.cu").read_text()
    assert text.count(LOOP) == 1, "the example has changed: give this script its loop"
    source = folder / "example.cu"
    source.write_text(text.replace(LOOP, SLOWED_LOOP))
    library = folder / f"wasted_{wasted_steps}.so"
    subprocess.run(["nvcc", "-O3", "-shared", "-arch=native", "-Xcompiler", "-fPIC,-fvisibility=hidden", "-I",
                    ROOT / "plugins", f"-DWASTED_STEPS={wasted_steps}", source, "-o", library], check=True)
    return library


def run(ssmbench, folder, plugin, name):
    results = folder / f"{name}.jsonl"
    command = [ssmbench, "run", folder / "config.json", "--device", "cuda", "--plugin", plugin, "--json", results,
               "--impl", "cuda-[ef]*", "--runs", "50", "--reruns", "0", "--quiet", "--no-supervision"]
    subprocess.run(command, check=True)
    return results


def gate(ssmbench, before, after):
    ended = subprocess.run([ssmbench, "gate", before, after, "--json", "-"], capture_output=True, text=True)
    assert ended.returncode in (0, 3), ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def example_medians(results):
    records = [json.loads(line) for line in results.open()]
    return [record["timing"]["hot"]["median_ms"] for record in records if record.get("impl") == "cuda-example"]


def build_slowed(ssmbench, folder, plugin):
    """Steps that are wasted cost more than others, and not in proportion: tries some."""
    before = example_medians(run(ssmbench, folder, plugin, "before"))
    tried = {}
    steps = 24
    for _ in range(4):
        slowed = build_plugin(folder, steps)
        after = example_medians(run(ssmbench, folder, slowed, f"wasted_{steps}"))
        change = statistics.fmean(b / a for a, b in zip(before, after)) - 1
        print(f"{steps} of 960 steps wasted: {100 * change:+.2f}%")
        tried[abs(change - 0.05)] = slowed
        steps = max(1, round(steps * 0.05 / max(change, 0.005)))
        if min(tried) < 0.002 or (folder / f"wasted_{steps}.so").exists():
            break
    return tried[min(tried)]


def print_noise(files):
    """How much medians of processes differ, and samples within one."""
    medians, spreads, correlations = {}, {}, {}
    for plugin, file in files:
        for line in file.open():
            record = json.loads(line)
            if "timing" not in record:
                continue
            samples = record["timing"]["hot"]["samples_ms"]
            deviations = [sample - statistics.fmean(samples) for sample in samples]
            square = sum(x * x for x in deviations) or 1
            key = (record["impl"], record["shape"]["batch"], plugin if record["impl"] == "cuda-example" else "")
            medians.setdefault(key, []).append(record["timing"]["hot"]["median_ms"])
            spreads.setdefault(key, []).append(statistics.stdev(samples) / statistics.fmean(samples))
            correlations.setdefault(key, []).append(
                sum(a * b for a, b in zip(deviations, deviations[1:])) / square)
    for key, values in sorted(medians.items()):
        print(f"{key}: median {statistics.median(values):.5f} ms; processes differ by "
              f"{100 * statistics.stdev(values) / statistics.fmean(values):.3f}% (largest over smallest "
              f"{max(values) / min(values):.4f}), samples by {100 * statistics.median(spreads[key]):.3f}%, "
              f"correlation of neighbours {statistics.median(correlations[key]):.2f}")


def main():
    ssmbench = sys.argv[1]
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 120
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        plugins = [build_plugin(folder, 0)]
        plugins.append(build_slowed(ssmbench, folder, plugins[0]))
        start = time.monotonic()
        files = []
        while len(files) < 4 or time.monotonic() - start < seconds:
            which = len(files) % 2
            files.append((which, run(ssmbench, folder, plugins[which], len(files))))
        same, slowed = {}, {}
        for (plugin_a, a), (plugin_b, b) in itertools.combinations(sorted(files), 2):
            for record in gate(ssmbench, a, b):
                if record["impl"] != "cuda-example" or plugin_a == plugin_b:
                    same[record["verdict"]] = same.get(record["verdict"], 0) + 1
                else:
                    slowed[record["verdict"]] = slowed.get(record["verdict"], 0) + 1
        print_noise(files)
        print(f"{len(files)} processes; the same code: {same}; slowed by 5%: {slowed}")
        ok = (same.get("SLOWER", 0) <= 0.01 * sum(same.values())
              and slowed.get("SLOWER", 0) >= 0.95 * sum(slowed.values()))
        print("as it should be" if ok else "NOT as it should be")
        return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
