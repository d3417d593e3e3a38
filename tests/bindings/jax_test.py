"""ssmbench.jax against definitions in plain PyTorch: values, gradients, jit, vmap, what is refused.

JAX runs on the device that JAX_PLATFORMS names, PyTorch on the CPU. SSMBENCH_TEST_DEVICE=cuda has the tolerances of a GPU.
"""

import contextlib
import importlib.util
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import inputs
import jax
import numpy
import references
import torch
from inputs import TOLERANCE, Comparing, Draw, exact, scan_arguments, ssd_arguments
from jax import numpy as jnp
from ssmbench import _library, _operations
from ssmbench import jax as kernels
from ssmbench._operations import Shaped
from torch import bfloat16, float32

ROOT = pathlib.Path(__file__).resolve().parents[2]
inputs.DEVICE = "cpu"


def to_jax(value):
    """A tensor, or the tensors of a dictionary, as JAX has them."""
    if isinstance(value, dict):
        return {k: to_jax(v) for k, v in value.items()}
    if not torch.is_tensor(value):
        return value
    value = value.detach()
    if value.dtype == bfloat16:
        return jnp.asarray(value.float().numpy(), jnp.bfloat16)
    return jnp.asarray(value.numpy())


def to_torch(array):
    if array.dtype == jnp.bfloat16:
        return torch.from_numpy(numpy.array(array.astype("float32"))).bfloat16()
    return torch.from_numpy(numpy.array(array))


def listed(values):
    return list(values) if isinstance(values, (tuple, list)) else [values]


class KernelTest(Comparing):
    def check(self, function, reference, arguments, dtype=float32, outputs=1):
        """Outputs, and gradients of all tensors for a random cotangent of the first `outputs`."""
        wide = {k: exact(v.requires_grad_(v.dtype != torch.int32)) for k, v in arguments.items()}
        expected = listed(reference(**wide))
        given = to_jax({k: v.detach() for k, v in arguments.items()})
        values = listed(function(**given))
        for i, (value, right) in enumerate(zip(values, expected)):
            self.assert_close(f"output {i}", to_torch(value), right, dtype)
        draw = Draw(1)
        cotangents = [draw.normal(*value.shape, dtype=to_torch(value).dtype) for value in values[:outputs]]
        names = [k for k, v in wide.items() if v.requires_grad]
        variables, others = {k: given[k] for k in names}, {k: v for k, v in given.items() if k not in names}

        @jax.jit
        def pull(variables, cotangents):
            return jax.vjp(lambda a: listed(function(**a, **others))[:outputs], variables)[1](cotangents)[0]

        gradients = pull(variables, [to_jax(c) for c in cotangents])
        right = torch.autograd.grad(expected[:outputs], [wide[n] for n in names], [exact(c) for c in cotangents])
        for name, expected_gradient in zip(names, right):
            self.assertEqual(gradients[name].dtype, given[name].dtype, name)
            # JAX's gradient of a complex number is the conjugate of PyTorch's.
            self.assert_close(f"gradient of {name}", to_torch(gradients[name]), expected_gradient.conj(), dtype)


class SelectiveScan(KernelTest):
    def run_case(self, arguments, dtype=float32, softplus=True):
        self.check(
            lambda **a: kernels.selective_scan(**a, delta_softplus=softplus, return_last_state=True),
            lambda **a: references.selective_scan(**a, delta_softplus=softplus),
            arguments,
            dtype,
        )

    def test_real(self):
        for dtype, options in itertools.product(TOLERANCE, (False, True)):
            with self.subTest(dtype=dtype, options=options):
                groups = 2 if options else 1
                self.run_case(scan_arguments(Draw(), dtype, groups, options=options), dtype, softplus=options)

    def test_complex_and_constant(self):
        for is_complex, constant in ((True, False), (True, True), (False, True)):
            with self.subTest(is_complex=is_complex, constant=constant):
                self.run_case(scan_arguments(Draw(), constant=constant, is_complex=is_complex))

    def test_complex_gradients_are_those_of_jax(self):
        """Two steps in jax.numpy: A and constant B, C."""
        draw = Draw()
        u, delta = to_jax(draw.normal(1, 3, 2)), to_jax(draw.positive(1, 3, 2))
        rates = [to_jax(torch.complex(-draw.positive(3, 4), draw.normal(3, 4))) for _ in "ABC"]

        def definition(A, B, C):
            first, second = (delta[0, :, t, None] * B * u[0, :, t, None] for t in (0, 1))
            h = jnp.exp(delta[0, :, 1, None] * A) * first + second
            return jnp.stack([2 * (C * first).sum(-1).real, 2 * (C * h).sum(-1).real], -1)[None]

        own = jax.grad(lambda *rates: kernels.selective_scan(u, delta, *rates).sum(), (0, 1, 2))(*rates)
        right = jax.grad(lambda *rates: definition(*rates).sum(), (0, 1, 2))(*rates)
        for name, gradient, expected in zip("ABC", own, right):
            self.assert_close(name, to_torch(gradient), to_torch(expected), float32)

    def test_several_dtypes(self):
        arguments = scan_arguments(Draw(), bfloat16)
        arguments["B"], arguments["D"] = arguments["B"].float(), arguments["D"].bfloat16()
        self.run_case(arguments, bfloat16)
        self.assertEqual(kernels.selective_scan(**to_jax(arguments)).dtype, jnp.bfloat16)

    def test_no_gradient_flows_through_the_last_state(self):
        arguments = to_jax(scan_arguments(Draw()))
        last = lambda u: kernels.selective_scan(**arguments | dict(u=u), return_last_state=True)[1].sum()
        self.assertFalse(jax.grad(last)(arguments["u"]).any())


class ChunkScan(KernelTest):
    def run_case(self, arguments, dtype=float32, **options):
        self.check(
            lambda **a: kernels.mamba_chunk_scan(**a, chunk_size=64, return_final_states=True, **options),
            lambda **a: references.chunk_scan(**a, **options),
            arguments,
            dtype,
            outputs=2,
        )

    def test_values_and_gradients(self):
        for dtype, options in itertools.product((float32, bfloat16), (False, True)):
            with self.subTest(dtype=dtype, options=options):
                groups = 2 if options else 1
                self.run_case(ssd_arguments(Draw(), dtype, groups, options), dtype, dt_softplus=options)

    def test_options(self):
        arguments = ssd_arguments(Draw())
        arguments["D"] = Draw().normal(4, 8)
        self.run_case(arguments, dt_softplus=True, dt_limit=(0.2, 0.7))
        arguments = ssd_arguments(Draw(), options=False)
        arguments["seq_idx"] = (torch.arange(70, dtype=torch.int32) // 23).expand(2, 70)
        self.run_case(arguments)

    def test_varlen_states(self):
        arguments = ssd_arguments(Draw(), options=False, batch=1)
        begins = [0, 11, 40, 70]
        out, final, varlen = kernels.mamba_chunk_scan(
            **to_jax(arguments),
            chunk_size=32,
            cu_seqlens=jnp.asarray(begins),
            return_final_states=True,
            return_varlen_states=True,
        )
        self.assertTrue((final == varlen[-1:]).all())
        for i, (a, b) in enumerate(itertools.pairwise(begins)):
            part = {k: exact(v if k == "A" else v[:, a:b]) for k, v in arguments.items()}
            expected, state = references.chunk_scan(**part)
            self.assert_close(f"out {i}", to_torch(out[:, a:b]), expected, float32)
            self.assert_close(f"state {i}", to_torch(varlen[i : i + 1]), state, float32)


class StateUpdate(KernelTest):
    def heads(self, draw, dtype=float32, groups=2):
        """Of Mamba-2, one number a head each."""
        return dict(
            x=draw.normal(3, 4, 8, dtype=dtype),
            dt=draw.positive(3, 4, dtype=dtype),
            A=-draw.positive(4),
            B=draw.normal(3, groups, 16, dtype=dtype),
            C=draw.normal(3, groups, 16, dtype=dtype),
            D=draw.normal(4),
            z=draw.normal(3, 4, 8, dtype=dtype),
            dt_bias=draw.normal(4),
        )

    def expanded(self, arguments):
        """As mamba_ssm has them."""
        wide = dict(arguments)
        wide["dt"] = arguments["dt"][:, :, None].expand(3, 4, 8)
        wide["A"] = arguments["A"][:, None, None].expand(4, 8, 16)
        return wide | {k: arguments[k][:, None].expand(4, 8) for k in ("D", "dt_bias")}

    def check_step(self, state, arguments, definition, dtype=float32):
        before = to_jax(state)
        updated, out = kernels.selective_state_update(before, **to_jax(arguments), dt_softplus=True)
        wide = {k: exact(v) for k, v in (dict(state=state) | definition).items()}
        right_state, right_out = references.state_update(**wide, dt_softplus=True)
        self.assert_close("out", to_torch(out), right_out.view(out.shape), dtype)
        self.assert_close("state", to_torch(updated), right_state.view(updated.shape), dtype)
        self.assertTrue((before == to_jax(state)).all())  # what was given stays

    def test_mamba1(self):
        for dtype, state_dtype in ((float32, float32), (bfloat16, float32), (bfloat16, bfloat16)):
            with self.subTest(dtype=dtype, state_dtype=state_dtype):
                draw = Draw()
                row = {k: draw.normal(3, 10, dtype=dtype) for k in ("x", "z")}
                row["dt"] = draw.positive(3, 10, dtype=dtype)
                rate = dict(A=-draw.positive(10, 16), D=draw.normal(10), dt_bias=draw.normal(10))
                group = {k: draw.normal(3, 16, dtype=dtype) for k in "BC"}
                state = draw.normal(3, 10, 16, dtype=state_dtype)
                one_head = {k: v[:, None] for k, v in (row | group).items()} | {k: v[None] for k, v in rate.items()}
                self.check_step(state, row | rate | group, one_head | dict(state=state[:, None]), dtype)

    def test_mamba2(self):
        for groups in (1, 2):
            draw = Draw()
            arguments = self.heads(draw, groups=groups)
            state, wide = draw.normal(3, 4, 8, 16), self.expanded(arguments)
            self.check_step(state, arguments, wide)
            wide["A"] = wide["A"] - draw.positive(4, 8, 16)  # a rate for each channel and state
            self.check_step(state, wide, wide)

    def test_rows_of_a_cache(self):
        draw = Draw()
        arguments, cache, rows = to_jax(self.heads(draw)), to_jax(draw.normal(7, 4, 8, 16)), jnp.asarray([5, 0, 3])
        own, expected = kernels.selective_state_update(cache[rows], **arguments)
        updated, out = jax.jit(kernels.selective_state_update, donate_argnums=0)(
            cache + 0, **arguments, state_batch_indices=rows
        )
        self.assertTrue((out == expected).all())
        self.assertTrue((updated == cache.at[rows].set(own)).all())


class Convolution(KernelTest):
    def arguments(self, draw, dtype=float32, width=4, seqlen=21):
        arguments = dict(x=draw.normal(2, 10, seqlen, dtype=dtype), weight=draw.normal(10, width, dtype=dtype))
        return arguments | dict(bias=draw.normal(10, dtype=dtype))

    def test_values_and_gradients(self):
        for dtype, width, silu in ((float32, 4, True), (float32, 2, False), (bfloat16, 4, True)):
            with self.subTest(dtype=dtype, width=width, silu=silu):
                self.check(
                    lambda **a: kernels.causal_conv1d(**a, activation="silu" if silu else None),
                    lambda **a: references.convolution(**a, silu=silu)[:1],
                    self.arguments(Draw(), dtype, width),
                    dtype,
                )

    def test_states_and_sequences(self):
        arguments = self.arguments(Draw()) | dict(initial_states=Draw(2).normal(2, 10, 3))
        for seqlen in (2, 21):
            self.check(
                lambda **a: kernels.causal_conv1d(**a, return_final_states=True),
                references.convolution,
                arguments | dict(x=arguments["x"].detach()[..., :seqlen]),
                outputs=2,
            )
        numbers = (torch.arange(21, dtype=torch.int32) // 6).expand(2, 21)
        self.check(
            lambda **a: kernels.causal_conv1d(**a),
            lambda **a: references.convolution(**a)[:1],
            self.arguments(Draw()) | dict(seq_idx=numbers),
        )

    def test_update(self):
        for tokens, ring, cached in itertools.product((0, 3), (False, True), (False, True)):
            with self.subTest(tokens=tokens, ring=ring, cached=cached):
                self.check_update(Draw(), tokens, ring, cached)

    def check_update(self, draw, tokens, ring, cached):
        """On a state of 5 steps; tokens 0: x has no axis of time."""
        history = draw.normal(5, 10, 5)
        rows = torch.tensor([4, 0, 2]) if cached else torch.arange(3)
        history = history if cached else history[:3]
        position = torch.tensor([7, 0, 3])
        state, steps = history.clone(), max(1, tokens)
        if ring:
            for row, p in zip(rows.tolist(), position.tolist()):
                state[row] = state[row].roll(p % 5, -1)
        x, weight, bias = draw.normal(3, 10, steps), draw.normal(10, 4), draw.normal(10)
        updated, out = kernels.causal_conv1d_update(
            *map(to_jax, (x if tokens else x.squeeze(2), state, weight, bias)),
            "silu",
            cache_seqlens=to_jax(position) if ring else None,
            conv_state_indices=to_jax(rows) if cached else None,
        )
        past = history[rows]
        expected, _ = references.convolution(
            *map(exact, (x, weight, bias)), initial_states=exact(past[..., -3:]), silu=True
        )
        self.assert_close("out", to_torch(out).view(expected.shape), expected, float32)
        for i, row in enumerate(rows.tolist()):
            newest = torch.cat([past[i], x[i]], 1)[:, -5:]
            state[row] = newest.roll((position[i].item() + steps) % 5, -1) if ring else newest
        self.assertTrue(torch.equal(to_torch(updated), state))


class Transformations(unittest.TestCase):
    def setUp(self):
        self.arguments = to_jax(scan_arguments(Draw()))
        self.two = {k: jnp.stack([v, v * 0.5]) for k, v in self.arguments.items()}

    def test_vmap(self):
        gradient = jax.grad(lambda a: kernels.selective_scan(**a).sum())
        for function in (lambda a: kernels.selective_scan(**a), gradient):
            values = jax.vmap(function)(self.two)
            for i in range(2):
                one = function({k: v[i] for k, v in self.two.items()})
                self.assertTrue(jax.tree.all(jax.tree.map(lambda a, b: (a[i] == b).all(), values, one)))

    def test_vmap_of_an_update(self):
        draw = Draw()
        x, state, weight = (to_jax(draw.normal(2, 3, *shape)) for shape in ((10,), (10, 3), (10, 4)))
        run = lambda x, state, weight: kernels.causal_conv1d_update(x, state, weight[0])
        for value, *each in zip(jax.vmap(run)(x, state, weight), *[run(x[i], state[i], weight[i]) for i in range(2)]):
            self.assertTrue((value == jnp.stack(each)).all())

    def test_what_has_no_derivative(self):
        run = lambda u: kernels.selective_scan(**self.arguments | dict(u=u)).sum()
        u = self.arguments["u"]
        with self.assertRaisesRegex(ValueError, "cannot be differentiated"):
            jax.grad(lambda u: jax.grad(run)(u).sum())(u)
        with self.assertRaisesRegex(TypeError, "forward-mode"):
            jax.jvp(run, (u,), (u,))
        weight, state = jnp.zeros((6, 4)), jnp.zeros((2, 6, 3))
        with self.assertRaisesRegex(ValueError, "cannot be differentiated"):
            jax.grad(lambda x: kernels.causal_conv1d_update(x, state, weight)[1].sum())(jnp.zeros((2, 6)))

    def test_threads(self):
        """Calls of several threads at once, in the library, too: each is told what is wrong with its own."""
        alone = kernels.selective_scan(**self.arguments)
        shaped = [kernels.shaped(name, self.arguments.get(name)) for name, _, _ in _operations.SCAN_INPUTS]
        shaped[3:5] = [Shaped((2, 2, 5, 19), "f32")] * 2  # B and C in groups
        shaped += [shaped[0], Shaped((2, 6, 5), "f32")]
        wrong = []

        def work(groups):
            plan = _operations.scan_forward.plan("cpu", shaped, (False,))
            next(axis for axis in plan.attributes if axis.name == b"groups").integer = groups
            unsupported = _library.library().ssmbench_plugin_unsupported
            for _ in range(500):
                reason = unsupported(plan.index, plan.problem).decode()
                if f"not a multiple of groups {groups}" not in reason:
                    wrong.append(reason)
            if not (kernels.selective_scan(**self.arguments) == alone).all():
                wrong.append("values")

        threads = [threading.Thread(target=work, args=(groups,)) for groups in (4, 5, 7, 8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Refusals(unittest.TestCase):
    def expect(self, error, words, function, *arguments, **options):
        with self.assertRaisesRegex(error, words) as caught:
            function(*arguments, **options)
        self.assertNotIn("\n", str(caught.exception))

    def test_arguments(self):
        scan = to_jax(scan_arguments(Draw()))
        zeros = jnp.zeros
        run = lambda **changes: kernels.selective_scan(**scan | changes)
        self.expect(ValueError, "dim 6 is not a multiple of groups 4", run, B=zeros((2, 4, 5, 19)))
        self.expect(ValueError, "tensor 'delta' has shape", run, delta=zeros((2, 6, 18)))
        self.expect(ValueError, r"u has shape \(2, 6\), not one of 3 axes", run, u=zeros((2, 6)))
        self.expect(ValueError, "B has shape", run, B=zeros((1, 2, 4, 5, 19)))
        conv = kernels.causal_conv1d
        self.expect(ValueError, "width 9", conv, zeros((2, 6, 9)), zeros((6, 9)))
        self.expect(ValueError, "no elements", conv, zeros((2, 6, 0)), zeros((6, 4)))
        self.expect(TypeError, "x is int8", conv, zeros((2, 6, 9), "int8"), zeros((6, 4)))
        self.expect(NotImplementedError, "activation 'relu'", conv, zeros((2, 6, 9)), zeros((6, 4)), activation="relu")
        ssd = to_jax(ssd_arguments(Draw())) | dict(chunk_size=64)
        chunk_scan = kernels.mamba_chunk_scan
        self.expect(ValueError, "needs cu_seqlens", chunk_scan, **ssd, return_varlen_states=True)
        self.expect(ValueError, "x has shape", chunk_scan, **ssd | dict(x=zeros((2, 70, 4))))
        step = dict(x=zeros((3, 10)), dt=zeros((3, 10)), A=zeros((10, 16)), B=zeros((3, 16)), C=zeros((3, 16)))
        update = kernels.selective_state_update
        self.expect(ValueError, "state has shape", update, zeros((3, 16)), **step)
        self.expect(TypeError, "state is int8", update, zeros((3, 10, 16), "int8"), **step)


@unittest.skipUnless("SSMBENCH" in os.environ and importlib.util.find_spec("h5py"), "needs ssmbench and h5py")
class Files(unittest.TestCase):
    """JAX's own kernels are verified through files."""

    def checked(self, kernel):
        """What `ssmbench check` says of the kernel's outputs for a dumped linear scan: its exit code."""
        sys.path.insert(0, str(ROOT / "scripts"))
        import interchange

        def compute(case, timed):
            out = kernel(*[jnp.asarray(case.inputs[name].values) for name in "ab"])
            return interchange.Outcome({"out": interchange.Tensor(numpy.asarray(out), "f32")}, "f32")

        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "cases.h5")
            dump = ["dump", str(ROOT / "tests/mutants/steps.json"), "--op", "linear_scan", "-o", file]
            subprocess.run([os.environ["SSMBENCH"], *dump, "--set", "dtype=f32"], check=True, capture_output=True)
            options = interchange.parser("", "").parse_args([file])
            with contextlib.redirect_stdout(None):
                self.assertEqual(interchange.main(options, lambda _: ("JAX", "CPU", compute)), 0)
            return subprocess.run([os.environ["SSMBENCH"], "check", file], capture_output=True).returncode

    def test_a_kernel(self):
        @jax.jit
        def scan(a, b):
            combine = lambda first, second: (first[0] * second[0], second[0] * first[1] + second[1])
            return jax.lax.associative_scan(combine, (a, b), axis=1)[1]

        self.assertEqual(self.checked(scan), 0)
        self.assertEqual(self.checked(lambda a, b: scan(a, b).at[0, -1].multiply(1.01)), 1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
