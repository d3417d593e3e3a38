"""Tests the exporters: what they do with files, with NumPy alone; the PyTorch one in full where PyTorch is installed.

    exporters_test.py SSMBENCH
"""

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import h5py
import numpy

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPTS = os.path.join(ROOT, "scripts")
sys.path.insert(0, SCRIPTS)
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import interchange  # noqa: E402

SSMBENCH = os.path.abspath(sys.argv.pop(1))
CONFIG = """{"format": "ssmbench-config/1", "sweeps": [
  {"op": "linear_scan", "axes": {"batch": 2, "dim": 3, "seqlen": 40, "dtype": ["f32", "f16", "bf16"]}},
  {"op": "selective_scan_fwd", "axes": {"batch": 2, "dim": 4, "seqlen": 9, "dstate": 3, "dtype": "bf16",
                                        "method": ["zoh", "foh_exact"], "A": ["real", "complex"],
                                        "layout": ["bdl", "bld"], "initial_state": true, "groups": 2}},
  {"op": "selective_scan_bwd", "axes": {"batch": 2, "dim": 4, "seqlen": 9, "dstate": 3, "dtype": "f32",
                                        "method": ["zoh", "foh_exact"], "A": ["real", "complex"],
                                        "layout": ["bdl", "bld"], "initial_state": true, "groups": 2}},
  {"op": "selective_scan_fwd", "axes": {"batch": 1, "dim": 4, "seqlen": 9, "dstate": 3, "dtype": "f32",
                                        "cu_seqlens": true, "sequences": 4, "lengths": "with-empty",
                                        "initial_state": [false, true]}},
  {"op": "ssd_chunk_scan_bwd", "axes": {"batch": 2, "nheads": 2, "headdim": 3, "seqlen": 9, "dstate": 2,
                                        "dtype": "f16", "seq_idx": true, "chunk_size": 4,
                                        "initial_states": true, "final_states": true}},
  {"op": "selective_state_update", "axes": {"form": "mamba2", "batch": 2, "nheads": 2, "headdim": 3, "dstate": 2,
                                            "dtype": "f32"}}]}"""


def widened(tensor):
    """The values in f32, which holds those of every storage type exactly."""
    if tensor.dtype == "bf16":
        return (tensor.values.astype(numpy.uint32) << 16).view(numpy.float32)
    return tensor.values.astype(numpy.float32)


def stored(values, dtype):
    if dtype != "bf16":
        return interchange.Tensor(values.astype(interchange.STORAGE[dtype]), dtype)
    bits = values.astype(numpy.float32).view(numpy.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to nearest even
    return interchange.Tensor(rounded.astype(numpy.uint16), dtype)


def linear_scan(case, time):
    """What stands in for a framework."""
    if case["op"] != "linear_scan":
        raise interchange.Unsupported("not written")
    a, b = (widened(case.inputs[name]) for name in "ab")
    h, rows = numpy.zeros_like(a[:, 0]), []
    for t in range(a.shape[1]):
        h = a[:, t] * h + b[:, t]
        rows.append(h)
    timing = {"hot_median_ms": 0.5} if time else {}
    return interchange.Outcome({"out": stored(numpy.stack(rows, 1), case["dtype"])}, "f32", timing=timing)


class Exporters(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.cases = os.path.join(self.folder, "cases.h5")
        config = os.path.join(self.folder, "config.json")
        with open(config, "w") as file:
            file.write(CONFIG)
        subprocess.run([SSMBENCH, "dump", config, "-o", self.cases, "--quiet"], check=True)
        os.unlink(config)

    def export(self, *arguments, compute=linear_scan):
        """Exit code, and what was printed."""
        options = interchange.parser("", "").parse_args([self.cases, *arguments])
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = interchange.main(options, lambda options: ("a test", "none", compute))
        return code, out.getvalue(), err.getvalue()

    def check(self, *arguments):
        return subprocess.run([SSMBENCH, "check", self.cases, *arguments], capture_output=True, text=True)

    def change(self, change):
        with h5py.File(self.cases, "r+") as file:
            change(file)

    def assert_rejected(self, words):
        with open(self.cases, "rb") as file:
            before = file.read()
        code, _, err = self.export()
        self.assertEqual(code, 2)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertIn(self.cases, err)
        self.assertIn(words, err)
        with open(self.cases, "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertEqual(os.listdir(self.folder), ["cases.h5"])

    def test_outputs_pass_in_every_dtype(self):
        code, out, err = self.export("--time")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("3 done, ", out)
        self.assertIn(": not written\n", out)
        judged = self.check("--case", "linear_scan*")
        self.assertEqual(judged.returncode, 0, judged.stdout + judged.stderr)
        self.assertIn("3 pass, 0 fail", judged.stdout)
        self.assertIn("a test", judged.stdout)
        with h5py.File(self.cases) as file:
            for name, case in file["cases"].items():
                self.assertEqual("out" in case["outputs"], name.startswith("linear_scan"))
                self.assertEqual(case.attrs.get("timing_hot_median_ms"), 0.5 if name.startswith("linear") else None)
                self.assertIn("reference", case)

    def test_a_wrong_output_fails(self):
        def wrong(case, time):
            outcome = linear_scan(case, time)
            outcome.outputs["out"].values[1, 7, 2] += 1
            return outcome

        self.assertEqual(self.export(compute=wrong)[0], 0)
        self.assertEqual(self.check("--case", "linear_scan-f32*").returncode, 1)

    def test_outputs_of_others_are_dropped(self):
        self.export("--time")
        self.export("--case", "*-f16-*")
        with h5py.File(self.cases) as file:
            done = [name for name, case in file["cases"].items() if len(case["outputs"])]
            times = [name for name, case in file["cases"].items() if "timing_hot_median_ms" in case.attrs]
        self.assertEqual(len(done), 1)
        self.assertIn("-f16-", done[0])
        self.assertEqual(times, [])

    def test_another_file_is_written_beside(self):
        with open(self.cases, "rb") as file:
            before = file.read()
        other = os.path.join(self.folder, "other.h5")
        self.assertEqual(self.export("-o", other, "--no-compress")[0], 0)
        with open(self.cases, "rb") as file:
            self.assertEqual(file.read(), before)
        self.cases = other
        self.assertEqual(self.check("--case", "linear_scan*").returncode, 0)

    def test_nothing_to_do(self):
        code, out, _ = self.export("--case", "selective*")
        self.assertEqual(code, 5)
        self.assertIn("0 done, ", out)

    def test_a_failure_is_told_and_the_rest_done(self):
        def failing(case, time):
            if case["op"] == "linear_scan" and case["dtype"] == "f16":
                raise RuntimeError("out of\nmemory")
            return linear_scan(case, time)

        code, out, err = self.export(compute=failing)
        self.assertEqual(code, 4)
        self.assertIn(": out of memory\n", err)
        self.assertIn("2 done, ", out)
        self.assertIn(" 1 failed", out)

    def test_an_interruption_leaves_the_file_as_it_was(self):
        def interrupted(case, time):
            raise KeyboardInterrupt

        with open(self.cases, "rb") as file:
            before = file.read()
        with self.assertRaises(KeyboardInterrupt):
            self.export(compute=interrupted)
        with open(self.cases, "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertEqual(os.listdir(self.folder), ["cases.h5"])

    def test_bad_files_are_rejected_and_left_alone(self):
        first = lambda file: next(case for name, case in file["cases"].items() if "linear" in name)  # noqa: E731

        def lie(file):
            first(file)["inputs/a"].attrs["dtype"] = "f64"

        self.change(lie)
        self.assert_rejected("/inputs/a: the attribute 'dtype' says f64, but values are uint16")

        def forget(file):
            del first(file)["inputs/a"].attrs["dtype"]

        self.change(forget)
        self.assert_rejected("/inputs/a: unknown dtype 'None'")

        def empty(file):
            del first(file)["inputs"]

        self.change(empty)
        self.assert_rejected("/inputs: the group is missing")
        self.change(lambda file: file.attrs.update(schema="ssmbench-interchange/9"))
        self.assert_rejected("the schema is 'ssmbench-interchange/9'")
        for length in (1000, 10, 0):
            os.truncate(self.cases, length)
            self.assert_rejected("")

    def test_scripts_answer_in_one_line(self):
        for script in ("export_torch.py", "export_mamba_ssm.py", "export_causal_conv1d.py", "export_flashinfer.py"):
            for arguments, code in ((["--help"], 0), (["missing.h5"], 2)):
                command = [sys.executable, "-B", os.path.join(SCRIPTS, script), *arguments]
                result = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)
                self.assertEqual(result.returncode, code, result.stderr)
                if code == 0:
                    self.assertIn("Example: scripts/" + script, result.stdout)
                else:
                    self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def test_table_of_times(self):
        self.export("--time")
        config, checks, runs = (os.path.join(self.folder, name) for name in ("config.json", "checks", "runs"))
        with open(config, "w") as file:
            file.write(CONFIG)
        self.check("--case", "linear_scan*", "--json", checks)
        command = [SSMBENCH, "run", config, "--op", "linear_scan", "--dtype", "f32", "--device", "cpu", "--runs", "3"]
        subprocess.run([*command, "--json", runs, "--quiet"], check=True)
        command = [sys.executable, "-B", os.path.join(SCRIPTS, "comparison_table.py"), self.cases, checks, runs]
        table = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        producer, own = [line.split(" | ") for line in table if line.startswith("| `linear_scan`")]
        self.assertEqual(producer[:5] + producer[6:8], own[:3] + ["a", "pass", "0.5000", ""])
        self.assertEqual(own[3:5], ["cpu-scalar", "pass"])
        self.assertGreater(float(own[6]), 0)
        self.assertEqual(len([line for line in table if line.startswith("| linear_scan-")]), 2)  # not run

        with open(checks) as file:  # an error that is not finite is null in records
            unbounded = re.sub(r'"tolerance_ratio":[^,}]*', '"tolerance_ratio":null', file.read())
        with open(checks, "w") as file:
            file.write(unbounded)
        table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self.assertIn("| a | pass | inf |", table)
        refused = subprocess.run([*command[:-1], self.cases], capture_output=True, text=True)
        self.assertEqual((refused.returncode, refused.stderr.count("\n")), (2, 1), refused.stderr)

    def test_table_of_one_run(self):
        """Gradients of a peer are compared with both passes, its copy is not, and what failed has no time."""

        def record(op, impl, cold, status="pass", z=True):
            timing = {kind: {"median_ms": cold} for kind in ("hot", "cold")}
            shape = {"batch": 8, "seqlen": 64, **({"sequences": 1} if op == "scan_fwd" else {})}
            return {
                "record": "case", "id": f"{op}-{z}", "op": op, "impl": impl, "status": status, "dtype": "bf16",
                "shape": shape, "method": "zoh", "layout": "bld", "options": {"z": z},
                "verify": {"outputs": {"out": {"tolerance_ratio": 0.5}}}, "timing": timing,
                "roofline": {"floor_ms": 0.25, "bound": "dram"},
            }  # fmt: skip

        def copy(op, z, ms):
            axes = {"batch": 8, "seqlen": 64, "dtype": "bf16", "z": z, "cu_seqlens": False}
            return {"record": "copy", "op": op, "axes": axes, "cold_ms": ms}

        runs, copies = (os.path.join(self.folder, name) for name in ("runs", "copies"))
        for path, lines in (
            (runs, [
                record("scan_fwd", "mamba-ssm", 4.5), record("scan_fwd", "a", 2.0), record("scan_fwd", "b", 1.0),
                record("scan_fwd", "c", 0.5, status="fail"), record("scan_bwd", "mamba-ssm", 9.25),
                record("scan_bwd", "a", 4.0), record("scan_bwd", "b", 2.0),
                record("scan_fwd", "mamba-ssm", 3.0, status="fail", z=False), record("scan_fwd", "a", 1.5, z=False),
                record("step", "mamba-ssm", 1.0), record("step", "a", 2.0),
            ]),
            (copies, [copy("scan_fwd", False, 9.0), copy("scan_fwd", True, 0.5), copy("scan_bwd", True, 0.25)]),
        ):  # fmt: skip
            with open(path, "w") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
        command = [sys.executable, "-B", os.path.join(SCRIPTS, "one_run_table.py"), runs, "--copies", copies]
        table = subprocess.run([*command, "--options", "z"], capture_output=True, text=True, check=True).stdout
        found = {}
        for line in table.splitlines()[2:]:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            found[cells[0], cells[3], cells[4]] = cells[5:]
        peer, fwd, bwd = "mamba-ssm", "`scan_fwd`", "`scan_bwd`"
        self.assertEqual(found[fwd, "True", peer], ["pass", "0.500", "4.5000", "4.5000", "0.5000", "4.00", "6% dram"])
        self.assertEqual(found[fwd, "True", "b"], ["pass", "0.500", "1.0000", "1.0000", "", "", "25% dram"])
        self.assertEqual(found[fwd, "True", "c"], ["fail", "0.500", "", "", "", "", ""])
        self.assertEqual(found[bwd, "True", peer][4:6], ["0.2500", "3.00"])  # 9 over 2 + 1
        self.assertEqual(found[fwd, "False", peer], ["fail", "0.500", "", "", "9.0000", "", ""])
        self.assertEqual(found["`step`", "True", peer][4:6], ["", "0.50"])
        self.assertEqual(len(found), 11)
        refused = subprocess.run([*command[:-1], self.cases], capture_output=True, text=True)
        self.assertEqual((refused.returncode, refused.stderr.count("\n")), (2, 1), refused.stderr)

    def test_copies_are_timed_once_a_case(self):
        try:
            import torch
            import torch_tensors
        except ImportError:
            self.skipTest("no PyTorch")
        import copy_times

        path = os.path.join(self.folder, "copies")

        def timing_of(copy, device, graph):
            copy()
            return {"cold_median_ms": 0.5}

        cases = [types.SimpleNamespace(op="scan", axes={"batch": batch, "limit": [0, 1]}) for batch in (1, 2, 1)]
        with mock.patch.object(torch_tensors, "timing_of", timing_of):
            copy_times.note(cases[0], [torch.zeros(2)])  # nobody asked
            with mock.patch.dict(os.environ, SSMBENCH_COPY_TIMES=path):
                for case in cases:
                    copy_times.note(case, [torch.zeros(2), torch.zeros(3)])
                copy_times.note(types.SimpleNamespace(op="step", axes={}), [])  # which copies nothing
        with open(path) as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual(lines, [
            {"record": "copy", "op": "scan", "axes": {"batch": batch}, "cold_ms": 0.5} for batch in (1, 2)
        ])  # fmt: skip

    def test_pytorch(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("no PyTorch")
        import export_torch

        options = argparse.Namespace(**vars(interchange.parser("", "").parse_args([self.cases, "--quiet"])))
        options.device, options.math = "cpu", "f32"
        self.assertEqual(interchange.main(options, export_torch.make), 0)
        judged = self.check()
        self.assertEqual(judged.returncode, 0, judged.stdout + judged.stderr)
        self.assertIn(" 0 fail", judged.stdout)
        with h5py.File(self.cases) as file:
            self.assertTrue(all(len(case["outputs"]) for case in file["cases"].values()))

    def assert_peer_passes(self, peer, sweeps, skipped):
        """A peer's exporter, with what stands in for the peer, on a file of these sweeps; ids of cases it skips."""
        try:
            import torch
        except ImportError:
            self.skipTest("no PyTorch")
        import stand_ins

        stand_ins.install()
        config = os.path.join(self.folder, "peer.json")
        with open(config, "w") as file:
            file.write('{"format": "ssmbench-config/1", "sweeps": [%s]}' % ", ".join(sweeps))
        self.cases = os.path.join(self.folder, "peer.h5")
        subprocess.run([SSMBENCH, "dump", config, "-o", self.cases, "--quiet"], check=True)
        compute = __import__(peer).compute_on(torch.device("cpu"))
        code, out, err = self.export(compute=compute)
        self.assertEqual((code, err), (0, ""), out)
        found = {line.split()[1].rstrip(":") for line in out.splitlines() if line.startswith("skip")}
        self.assertEqual(len(found), skipped, out)
        judged = self.check()
        self.assertIn(" 0 fail", judged.stdout, judged.stdout + judged.stderr)
        with h5py.File(self.cases) as file:
            for name, case in file["cases"].items():
                self.assertEqual(len(case["outputs"]) > 0, name not in found, name)
        return out

    def test_causal_conv1d(self):
        shape = '"batch": 2, "dim": 16, "seqlen": 11'
        out = self.assert_peer_passes(
            "export_causal_conv1d",
            [
                '{"op": "causal_conv1d_fwd", "axes": {%s, "dtype": ["f32", "bf16"], "layout": ["bdl", "bld"]}}' % shape,
                '{"op": "causal_conv1d_fwd", "axes": {%s, "dtype": "f32", "layout": "bld", "initial_states": true,'
                ' "final_states": true}}' % shape,
                '{"op": "causal_conv1d_fwd", "axes": {%s, "dtype": "f32", "layout": "bld", "seq_idx": true}}' % shape,
                '{"op": "causal_conv1d_fwd", "axes": {%s, "dtype": "f32", "layout": "bdl", "seq_idx": true}}' % shape,
                '{"op": "causal_conv1d_fwd", "axes": {%s, "dtype": "f32", "layout": "bdl", "width": 5}}' % shape,
                '{"op": "causal_conv1d_bwd", "axes": {%s, "dtype": "f32", "layout": "bld", "initial_states": true,'
                ' "final_states": true, "dout_layout": ["same", "other"]}}' % shape,
                '{"op": "causal_conv1d_bwd", "axes": {%s, "dtype": "f32", "layout": "bdl"}}' % shape,
                '{"op": "causal_conv1d_update", "axes": {"batch": 5, "dim": 16, "dtype": ["f32", "bf16"],'
                ' "layout": ["sdk", "skd"], "tokens": [1, 3], "state_len": 5}}',
                '{"op": "causal_conv1d_update", "axes": {"batch": 5, "dim": 16, "dtype": "f32", "layout": "skd",'
                ' "store": ["last", "apart"], "slots": 12, "pads": true}}',
                '{"op": "linear_scan", "axes": {"batch": 2, "dim": 3, "seqlen": 4, "dtype": "f32"}}',
            ],
            skipped=4,
        )
        self.assertIn("causal_conv1d has widths 2 to 4, not 5", out)
        self.assertIn("causal_conv1d_update stores states where they come from", out)

    def test_outputs_are_given_in_place_of_new_ones(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no PyTorch")
        from given_outputs import GivenOutputs

        x = torch.ones(2, 3, dtype=torch.bfloat16)
        out, state = torch.zeros_like(x), torch.zeros(2, 3, 5)
        for _ in range(2):
            with GivenOutputs([out, state]):
                self.assertEqual(torch.empty(256, dtype=torch.int32).shape, (256,))
                self.assertIsNot(torch.empty((2, 3)), out)  # another dtype
                self.assertIs(torch.empty_like(x), out)
                self.assertIsNot(torch.empty_like(x), out)  # once
                self.assertIs(torch.empty((2, 3, 5), dtype=torch.float32), state)
        self.assertIsNot(torch.empty_like(x), out)

    def test_mamba_ssm(self):
        steps = '"op": "selective_state_update", "axes": {"batch": 5, "dstate": 6, "slots": 11, "pads": 3'
        heads = '"form": "mamba2", "nheads": 4, "headdim": 3, "groups": 2'
        packed = (
            '"op": "ssd_chunk_scan_fwd", "axes": {"batch": 1, "seqlen": 40, "nheads": 4, "headdim": 3, "dstate": 6,'
            ' "groups": 2, "chunk_size": 16, "dtype": "f32", "cu_seqlens": true, "sequences": 4'
        )
        out = self.assert_peer_passes(
            "export_mamba_ssm",
            [
                '{%s, %s, "dtype": ["f32", "bf16"], "state_dtype": ["f32", "bf16"]}}' % (steps, heads),
                '{%s, "form": "mamba1", "dim": 8, "dtype": "f32", "dt_dtype": "f32"}}' % steps,
                '{%s, %s, "dtype": "f32", "store": "apart"}}' % (steps, heads),
                '{%s, %s, "dtype": "f32", "tokens": 2}}' % (steps, heads),
                '{%s, "final_states": [false, true]}}' % packed,
                '{%s, "initial_states": true}}' % packed,
                '{"op": "selective_scan_fwd", "axes": {"batch": 1, "dim": 4, "seqlen": 9, "dstate": 3, "dtype": "f32",'
                ' "cu_seqlens": true, "sequences": 2}}',
            ],
            skipped=4,
        )
        self.assertIn("selective_state_update takes one token", out)
        self.assertIn("selective_state_update stores states where they come from", out)
        self.assertIn("takes no initial states of packed sequences", out)

    def test_mamba_ssm_of_mamba3(self):
        shape = '"batch": 2, "seqlen": 32, "nheads": 4, "headdim": 16, "dstate": 32, "groups": 2, "chunk_size": 16'
        packed = shape.replace('"batch": 2', '"batch": 1, "cu_seqlens": true, "sequences": 3')
        states = '"initial_states": true, "final_states": true'
        siso = '"dtype": "bf16", "angle_dtype": "bf16", "rope_angles": 8'
        mimo = '"dtype": "bf16", "rope_angles": 16, "mimo_rank": 2'
        step = '"form": "siso", "batch": 3, "nheads": 4, "headdim": 16, "dstate": 32, "rope_angles": 8'
        out = self.assert_peer_passes(
            "export_mamba_ssm",
            [
                '{"op": "mamba3_siso_fwd", "axes": {%s, %s, "z": [true, false], "D": [true, false],'
                ' "initial_states": [false, true]}}' % (shape, siso),
                '{"op": "mamba3_siso_fwd", "axes": {%s, %s, %s}}' % (packed, siso, states),
                '{"op": "mamba3_siso_bwd", "axes": {%s, %s}}' % (shape, siso),
                '{"op": "mamba3_siso_bwd", "axes": {%s, %s, %s, "D": false}}' % (packed, siso, states),
                '{"op": "mamba3_siso_fwd", "axes": {%s, %s, "dtype": "f32"}}' % (shape, siso[16:]),
                '{"op": "mamba3_siso_fwd", "axes": {%s, "dtype": "bf16", "rope_angles": 8}}' % shape,
                '{"op": "mamba3_mimo_fwd", "axes": {%s, %s, "out_reduce": [true, false], "z": [true, false]}}'
                % (shape, mimo),
                '{"op": "mamba3_mimo_fwd", "axes": {%s, %s, "outproj_norm": true}}' % (packed, mimo),
                '{"op": "mamba3_mimo_bwd", "axes": {%s, %s, "outproj_norm": [false, true]}}' % (shape, mimo),
                '{"op": "mamba3_mimo_bwd", "axes": {%s, %s}}' % (shape.replace("32", "31", 1), mimo),
                '{"op": "mamba3_mimo_fwd", "axes": {%s, %s, "initial_states": true}}' % (shape, mimo),
                '{"op": "mamba3_step", "axes": {%s, "dtype": ["bf16", "f32"], "D": [true, false]}}' % step,
            ],
            skipped=4,
        )
        self.assertIn("Mamba-3 rounds its inputs to bf16", out)
        self.assertIn("--set angle_dtype=bf16", out)
        self.assertIn("gradients take whole chunks alone", out)
        self.assertIn("mamba3_mimo takes no Input_SSM_State", out)

    def test_flashinfer(self):
        heads = '"form": "mamba2", "nheads": 4, "headdim": 3, "groups": 2, "dstate": 6'
        slots = '"op": "selective_state_update", "axes": {%s, "batch": 5, "slots": 31, "pads": 3' % heads
        out = self.assert_peer_passes(
            "export_flashinfer",
            [
                '{%s, "dtype": ["f32", "bf16"], "state_dtype": ["f32", "bf16"]}}' % slots,
                '{%s, "dtype": "bf16", "state_dtype": ["i16", "i8"], "dt_dtype": "f32", "z": false}}' % slots,
                '{%s, "dtype": "f32", "store": ["apart", "each", "none"]}}' % slots,
                '{%s, "dtype": "bf16", "tokens": 3, "store": ["last", "apart", "each", "none"]}}' % slots,
                '{%s, "dtype": "f32", "D": false}}' % slots,
                '{"op": "selective_state_update", "axes": {%s, "batch": 3, "dtype": "f32", "dt_bias": false}}' % heads,
                '{"op": "selective_state_update", "axes": {"form": "mamba1", "batch": 3, "dim": 4, "dstate": 6,'
                ' "dtype": "f32"}}',
            ],
            skipped=3,
        )
        self.assertIn("has no states in i8", out)
        self.assertIn("one number a head", out)
        self.assertIn("needs D", out)
        with h5py.File(self.cases) as file:
            drafts = [case["outputs"] for case in file["cases"].values() if "intermediate" in case["outputs"]]
        self.assertEqual(len(drafts), 1)

    def test_flashinfer_calls_a_store_by_what_indices_say(self):
        import flashinfer_calls

        source = numpy.array([4, -1, 2])
        for store, destination in (
            ("last", [[-1, 4], [-1, -1], [-1, 2]]),
            ("last", [4, -1, 2]),
            ("apart", [[-1, 5], [-1, -1], [-1, 2]]),
            ("each", [[5, 4], [-1, -1], [-1, 2]]),
            ("none", [[-1, -1]] * 3),
        ):
            self.assertEqual(flashinfer_calls.store_of(source, numpy.array(destination)), store, destination)


if __name__ == "__main__":
    unittest.main(verbosity=1)
