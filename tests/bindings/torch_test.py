"""ssmbench.torch against definitions in plain PyTorch, on the CPU: values, gradients, operators, what is refused."""

import contextlib
import itertools
import unittest
from unittest import mock

import references
import torch
from inputs import DEVICE, TOLERANCE, Comparing, Draw, exact, scan_arguments, ssd_arguments
from ssmbench import torch as kernels
from ssmbench.torch import _chunk_scan, _convolution, _operation, _scan, _state_update
from ssmbench.torch._tensors import dense
from torch import float32
from torch._subclasses.fake_tensor import FakeTensorMode


class KernelTest(Comparing):
    def check(self, function, reference, arguments, dtype, outputs=1, **options):
        """Outputs, and gradients of all tensors for a random cotangent of the first `outputs`."""
        arguments = {
            k: v.detach().requires_grad_(v.is_floating_point() or v.is_complex()) if torch.is_tensor(v) else v
            for k, v in arguments.items()
        }
        wide = {k: exact(v) for k, v in arguments.items()}
        values, expected = function(**arguments, **options), reference(**wide)
        values = values if isinstance(values, tuple) else (values,)
        for i, (value, right) in enumerate(zip(values, expected)):
            self.assert_close(f"output {i}", value, right, dtype)
        draw = Draw(1)
        cotangents = [draw.normal(*value.shape, dtype=value.dtype) for value in values[:outputs]]
        names = [k for k, v in arguments.items() if torch.is_tensor(v) and v.requires_grad]
        gradients = torch.autograd.grad(values[:outputs], [arguments[n] for n in names], cotangents)
        right = torch.autograd.grad(expected[:outputs], [wide[n] for n in names], [exact(c) for c in cotangents])
        for name, gradient, expected_gradient in zip(names, gradients, right):
            self.assertEqual(gradient.dtype, arguments[name].dtype, name)
            self.assert_close(f"gradient of {name}", gradient, expected_gradient, dtype)
        for _ in range(2):
            with torch.no_grad():  # past the operator, and then past what was looked at in the first call
                direct = function(**arguments, **options)
            for value, again in zip(values, direct if isinstance(direct, tuple) else (direct,)):
                self.assertTrue(torch.equal(value, again))
                self.assertEqual(value.stride(), again.stride())


class SelectiveScan(KernelTest):
    def run_case(self, arguments, dtype=float32, softplus=True):
        self.check(
            lambda **a: kernels.selective_scan(**a, delta_softplus=softplus, return_last_state=True),
            lambda **a: references.selective_scan(**a, delta_softplus=softplus),
            arguments,
            dtype,
        )

    def test_real(self):
        for dtype, groups, options in itertools.product(TOLERANCE, (1, 2), (False, True)):
            with self.subTest(dtype=dtype, groups=groups, options=options):
                self.run_case(scan_arguments(Draw(), dtype, groups, options=options), dtype, softplus=options)

    def test_complex_and_constant(self):
        for is_complex, constant in ((True, False), (True, True), (False, True)):
            with self.subTest(is_complex=is_complex, constant=constant):
                self.run_case(scan_arguments(Draw(), constant=constant, is_complex=is_complex))

    def test_several_dtypes(self):
        arguments = scan_arguments(Draw(), torch.bfloat16)
        arguments["B"], arguments["D"] = arguments["B"].float(), arguments["D"].bfloat16()
        self.run_case(arguments, torch.bfloat16)
        with torch.no_grad():
            self.assertEqual(kernels.selective_scan(**arguments).dtype, torch.bfloat16)

    def test_channels_last_is_taken_without_a_copy(self):
        arguments = scan_arguments(Draw(), groups=2)
        for name in ("u", "delta", "z"):
            arguments[name] = arguments[name].transpose(1, 2).contiguous().transpose(1, 2)
        arguments["B"] = arguments["B"].permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
        self.run_case(arguments)
        with mock.patch.object(torch.Tensor, "copy_", side_effect=AssertionError), torch.no_grad():
            out = kernels.selective_scan(**arguments)
        self.assertEqual(out.stride(), arguments["u"].stride())

    def test_slices_of_channels(self):
        arguments = scan_arguments(Draw(), groups=2)
        for name in ("u", "delta", "z"):
            arguments[name] = torch.cat([arguments[name]] * 2, 1).transpose(1, 2).contiguous()[..., 6:].transpose(1, 2)
        self.run_case(arguments)
        with torch.no_grad():
            self.assertEqual(kernels.selective_scan(**arguments).stride(), (19 * 6, 1, 6))

    def test_channels_last_with_constant_projections(self):
        arguments = scan_arguments(Draw(), constant=True)
        for name in ("u", "delta", "z"):
            arguments[name] = arguments[name].transpose(1, 2).contiguous().transpose(1, 2)
        self.run_case(arguments)

    def test_states_kept_for_gradients(self):
        for dtype, is_transposed in itertools.product(TOLERANCE, (False, True)):
            arguments = scan_arguments(Draw(), dtype, seqlen=40, dim=16, dstate=16)
            if is_transposed:
                for name in ("u", "delta", "z"):
                    arguments[name] = arguments[name].transpose(1, 2).contiguous().transpose(1, 2)
            arguments = {name: tensor.detach().requires_grad_() for name, tensor in arguments.items()}
            wide = {name: exact(tensor) for name, tensor in arguments.items()}
            with self.subTest(dtype=dtype, is_transposed=is_transposed):
                out, last_state = kernels.selective_scan(
                    **arguments, delta_softplus=True, return_last_state=True, keep_states=True
                )
                right, right_state = references.selective_scan(**wide, delta_softplus=True)
                self.assert_close("out", out, right, dtype)
                self.assert_close("last_state", last_state, right_state, dtype)
                cotangent = Draw(1).normal(*out.shape, dtype=dtype)
                gradients = torch.autograd.grad(out, list(arguments.values()), cotangent)
                expected = torch.autograd.grad(right, list(wide.values()), exact(cotangent))
                for name, gradient, expected_gradient in zip(arguments, gradients, expected):
                    self.assert_close(f"gradient of {name}", gradient, expected_gradient, dtype)

    def test_states_are_kept_only_if_asked_for(self):
        arguments = scan_arguments(Draw(), seqlen=40, dim=16, dstate=16)
        arguments["u"].requires_grad_()
        for keep_states in (False, True):
            with mock.patch.object(_scan, "scan_backward_with_x", wraps=_scan.scan_backward_with_x) as backward:
                kernels.selective_scan(**arguments, keep_states=keep_states).sum().backward()
            self.assertEqual(backward.call_count, keep_states)

    def test_strided(self):
        arguments = scan_arguments(Draw(), seqlen=38)
        for name in ("u", "delta", "z", "B", "C"):
            arguments[name] = arguments[name][..., ::2]
        self.run_case(arguments)

    def test_one_step_and_one_channel(self):
        for dim, seqlen in ((1, 1), (1, 7), (6, 1)):
            self.run_case(scan_arguments(Draw(), dim=dim, seqlen=seqlen))


class ChunkScan(KernelTest):
    def run_case(self, arguments, dtype=float32, outputs=2, **options):
        self.check(
            lambda **a: kernels.mamba_chunk_scan(**a, chunk_size=64, return_final_states=True, **options),
            lambda **a: references.chunk_scan(**a, **options),
            arguments,
            dtype,
            outputs,
        )

    def test_values_and_gradients(self):
        for dtype, groups, options in itertools.product(TOLERANCE, (1, 2), (False, True)):
            with self.subTest(dtype=dtype, groups=groups, options=options):
                self.run_case(ssd_arguments(Draw(), dtype, groups, options), dtype, dt_softplus=options)

    def test_options(self):
        arguments = ssd_arguments(Draw())
        arguments["D"] = Draw().normal(4, 8)
        self.run_case(arguments, dt_softplus=True, dt_limit=(0.2, 0.7))
        arguments = ssd_arguments(Draw(), options=False)
        arguments["seq_idx"] = (torch.arange(70, dtype=torch.int32, device=DEVICE) // 23).expand(2, 70)
        self.run_case(arguments)

    def test_slices_of_channels(self):
        """Are copied once, and gradients find the copies."""
        arguments = ssd_arguments(Draw())
        for name, (_, _, groups, width) in ((k, arguments[k].shape) for k in ("x", "B", "C")):
            arguments[name] = Draw(3).normal(2, 70, groups * width + 8)[..., 8:].unflatten(-1, (groups, width))
        self.run_case(arguments, dt_softplus=True)
        arguments["x"].requires_grad_()
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            kernels.mamba_chunk_scan(**arguments, chunk_size=64)
        self.assertEqual(len(kept), 9)
        self.assertTrue(all(tensor.is_contiguous() for tensor in kept))

    def test_varlen_states(self):
        arguments = ssd_arguments(Draw(), options=False, batch=1)
        begins = [0, 11, 40, 70]
        lengths = torch.tensor(begins, device=DEVICE).diff()
        numbers = torch.arange(3, dtype=torch.int32, device=DEVICE).repeat_interleave(lengths)[None]
        out, final, varlen = kernels.mamba_chunk_scan(
            **arguments,
            chunk_size=32,
            seq_idx=numbers,
            cu_seqlens=torch.tensor(begins, device=DEVICE),
            return_final_states=True,
            return_varlen_states=True,
        )
        expected, last = references.chunk_scan(**{k: exact(v) for k, v in arguments.items()}, seq_idx=numbers)
        self.assert_close("out", out, expected, float32)
        self.assert_close("final", final, last, float32)
        for i, (a, b) in enumerate(itertools.pairwise(begins)):
            part = {k: v if k == "A" else v[:, a:b] for k, v in arguments.items()}
            self.assert_close(f"state {i}", varlen[i : i + 1], references.chunk_scan(**part)[1], float32)


class StateUpdate(KernelTest):
    def expect(self, state, arguments, **options):
        """Against the definition with a head axis; mamba-1 is one head. Returns the state that is right."""
        before = state.clone()
        out = kernels.selective_state_update(state, **arguments, **options)
        one_head = state.dim() == 3
        wide = {k: exact(v) for k, v in arguments.items()}
        before = exact(before)
        if one_head:
            before = before.unsqueeze(1)
            for name, tensor in wide.items():
                axis = 1 if name in ("x", "dt", "z") or (name in "BC" and tensor.dim() == 2) else 0
                if not (name in "BC" and tensor.dim() == 3):
                    wide[name] = tensor.unsqueeze(axis)
        return out, *references.state_update(before, **wide, **options)

    def check_step(self, state, arguments):
        dtype = arguments["x"].dtype
        out, right_state, right_out = self.expect(state, arguments, dt_softplus=True)
        self.assert_close("out", out, right_out.view(out.shape), dtype)
        self.assert_close("state", state, right_state.view(state.shape), max(state.dtype, dtype, key=TOLERANCE.get))

    def arguments(self, draw, dtype, lead, dim, groups, tied=False):
        """`lead`: () or (heads,)."""
        ones = (*lead, 1) if tied else (*lead, dim)
        channel = lambda *shape: draw.normal(*shape).expand(*lead, dim)
        return dict(
            x=draw.normal(3, *lead, dim, dtype=dtype),
            dt=draw.positive(3, *ones, dtype=dtype).expand(3, *lead, dim),
            A=(-draw.positive(*lead, 1, 1)).expand(*lead, dim, 16) if tied else -draw.positive(*lead, dim, 16),
            B=draw.normal(3, *groups, 16, dtype=dtype),
            C=draw.normal(3, *groups, 16, dtype=dtype),
            D=channel(*ones),
            z=draw.normal(3, *lead, dim, dtype=dtype),
            dt_bias=channel(*ones),
        )

    def test_mamba1(self):
        for dtype, state_dtype in ((float32, float32), (torch.bfloat16, float32), (torch.bfloat16, torch.bfloat16)):
            for groups in ((), (1,)):
                with self.subTest(dtype=dtype, state_dtype=state_dtype, groups=groups):
                    draw = Draw()
                    self.check_step(
                        draw.normal(3, 10, 16, dtype=state_dtype), self.arguments(draw, dtype, (), 10, groups)
                    )

    def test_mamba2(self):
        for tied, groups in itertools.product((True, False), (1, 2)):
            with self.subTest(tied=tied, groups=groups):
                draw = Draw()
                arguments = self.arguments(draw, float32, (4,), 8, (groups,), tied)
                _state_update.step.placed.clear()
                self.check_step(draw.normal(3, 4, 8, 16), arguments)
                (placed,) = _state_update.step.placed.values()
                self.assertEqual(placed.plan.tensors[0].rank, 4 if tied else 3)  # one rate a head is computed as such

    def test_state_that_is_not_dense(self):
        draw = Draw()
        state = draw.normal(3, 10, 32)[..., ::2]
        self.check_step(state, self.arguments(draw, float32, (), 10, ()))

    def test_rows_of_a_cache(self):
        draw = Draw()
        cache, rows = draw.normal(7, 10, 16), torch.tensor([5, 0, 3], device=DEVICE)
        arguments = self.arguments(draw, float32, (), 10, ())
        own, before = cache[rows], cache.clone()
        expected = kernels.selective_state_update(own, **arguments)
        out = kernels.selective_state_update(cache, **arguments, state_batch_indices=rows)
        self.assertTrue(torch.equal(out, expected))
        self.assertTrue(torch.equal(cache[rows], own))
        others = [1, 2, 4, 6]
        self.assertTrue(torch.equal(cache[others], before[others]))

    def test_other_addresses(self):
        """What was bound for some addresses is not used for others."""
        draw = Draw()
        arguments = self.arguments(draw, float32, (), 10, ())
        for _ in range(9):
            moved = {k: v.clone() for k, v in arguments.items()}
            self.check_step(draw.normal(3, 10, 16), moved)


class Convolution(KernelTest):
    def run_case(self, arguments, dtype=float32, silu=True):
        self.check(
            lambda **a: kernels.causal_conv1d(**a, activation="silu" if silu else None),
            lambda **a: references.convolution(**a, silu=silu)[:1],
            arguments,
            dtype,
        )

    def arguments(self, draw, dtype=float32, width=4, seqlen=21, channels_last=False, bias=True):
        x = draw.normal(2, seqlen, 10, dtype=dtype).transpose(1, 2)
        arguments = dict(x=x if channels_last else x.contiguous(), weight=draw.normal(10, width, dtype=dtype))
        return arguments | (dict(bias=draw.normal(10, dtype=dtype)) if bias else {})

    def test_values_and_gradients(self):
        for dtype, width, channels_last, silu in itertools.product(
            (float32, torch.bfloat16), (2, 4), (False, True), (False, True)
        ):
            with self.subTest(dtype=dtype, width=width, channels_last=channels_last, silu=silu):
                arguments = self.arguments(Draw(), dtype, width, channels_last=channels_last, bias=silu)
                self.run_case(arguments, dtype, silu)

    def test_slices_of_channels(self):
        arguments = self.arguments(Draw()) | dict(x=Draw(3).normal(2, 21, 25)[..., 3:13].transpose(1, 2))
        self.run_case(arguments)
        with torch.no_grad():
            self.assertEqual(kernels.causal_conv1d(**arguments).stride(), (21 * 10, 1, 10))

    def test_states(self):
        arguments = self.arguments(Draw()) | dict(initial_states=Draw(2).normal(2, 10, 3))
        for seqlen in (2, 21):
            self.check(
                lambda **a: kernels.causal_conv1d(**a, return_final_states=True),
                references.convolution,
                arguments | dict(x=arguments["x"][..., :seqlen]),
                float32,
                outputs=2,
            )
        given = torch.empty(2, 10, 3, device=DEVICE)
        with torch.no_grad():
            _, states = kernels.causal_conv1d(**arguments, return_final_states=True, final_states_out=given)
        self.assertIs(states, given)
        self.assertTrue(torch.equal(given, arguments["x"][..., -3:]))

    def test_sequences(self):
        numbers = torch.arange(21, dtype=torch.int32, device=DEVICE) // 6
        arguments = self.arguments(Draw()) | dict(seq_idx=numbers.expand(2, 21))
        self.run_case(arguments)

    def test_weights_of_another_dtype(self):
        arguments = self.arguments(Draw(), torch.bfloat16)
        arguments["bias"] = arguments["bias"].float()
        self.run_case(arguments, torch.bfloat16)

    def test_update(self):
        for tokens, ring, cached, channels_last in itertools.product((0, 1, 3), *[(False, True)] * 3):
            with self.subTest(tokens=tokens, ring=ring, cached=cached, channels_last=channels_last):
                self.check_update(Draw(), tokens, ring, cached, channels_last)

    def check_update(self, draw, tokens, ring, cached, channels_last):
        history = draw.normal(5, 10, 5)  # of which the state holds the latest 5 steps, in order
        state = history.transpose(1, 2).contiguous().transpose(1, 2) if channels_last else history.clone()
        rows = torch.tensor([4, 0, 2], dtype=torch.int32, device=DEVICE) if cached else torch.arange(3, device=DEVICE)
        if not cached:
            state, history = state[:3], history[:3]
        position = torch.tensor([7, 0, 3], dtype=torch.int32, device=DEVICE)
        if ring:
            for row, p in zip(rows.tolist(), position.tolist()):
                state[row] = state[row].roll(p % 5, -1)
        x, weight, bias = draw.normal(3, 10, max(1, tokens)), draw.normal(10, 4), draw.normal(10)
        before = state.clone()
        out = kernels.causal_conv1d_update(
            x if tokens else x.squeeze(2),
            state,
            weight,
            bias,
            "silu",
            cache_seqlens=position if ring else None,
            conv_state_indices=rows if cached else None,
        )
        past = history[rows.long()]
        expected, _ = references.convolution(
            *map(exact, (x, weight, bias)), initial_states=exact(past[..., -3:]), silu=True
        )
        self.assert_close("out", out if tokens else out.unsqueeze(2), expected, float32)
        newest = torch.cat([past, x], 2)[..., -5:]
        for i, row in enumerate(rows.tolist()):
            kept = state[row].roll(-((position[i].item() + max(1, tokens)) % 5), -1) if ring else state[row]
            self.assertTrue(torch.equal(kept, newest[i]))
        others = [row for row in range(len(state)) if row not in rows.tolist()]
        self.assertTrue(torch.equal(state[others], before[others]))


def examples():
    """Calls of every function, and the operators under them."""
    draw = Draw()
    one = dict(A=-draw.positive(6, 5), B=draw.normal(2, 5), C=draw.normal(2, 5), D=draw.normal(6))
    rows = dict(x=draw.normal(2, 6), dt=draw.positive(2, 6), z=draw.normal(2, 6))
    conv = dict(weight=draw.normal(6, 4), bias=draw.normal(6), activation="silu")
    return {
        "selective_scan": (kernels.selective_scan, scan_arguments(draw) | dict(delta_softplus=True)),
        "mamba_chunk_scan": (
            kernels.mamba_chunk_scan,
            ssd_arguments(draw) | dict(chunk_size=64, return_final_states=True),
        ),
        "selective_state_update": (kernels.selective_state_update, dict(state=draw.normal(2, 6, 5)) | rows | one),
        "causal_conv1d": (kernels.causal_conv1d, dict(x=draw.normal(2, 6, 9)) | conv),
        "causal_conv1d_update": (
            kernels.causal_conv1d_update,
            dict(x=draw.normal(2, 6), conv_state=draw.normal(2, 6, 3)) | conv,
        ),
    }


class DenseCopies(unittest.TestCase):
    def test_slices(self):
        """By vectors where first, last and pitch allow it, and by elements."""
        for dtype in (torch.float32, torch.bfloat16):
            whole = torch.randn(3, 5, 32, device=DEVICE).to(dtype)
            for first, last in ((8, 24), (8, 32), (0, 16), (1, 17), (8, 23), (8, 8)):
                for tensor in (whole[..., first:last], whole[:, 2, first:last], whole[..., first:last].transpose(1, 2)):
                    copy = dense(tensor)
                    self.assertTrue(copy.is_contiguous())
                    self.assertEqual(copy.dtype, dtype)
                    self.assertTrue(torch.equal(copy, tensor))


class Operators(unittest.TestCase):
    def test_opcheck(self):
        """Schema, fake tensors, autograd and tracing, of the operators as the functions call them."""
        checked = set()
        real_call = _operation.call
        for operation in (_state_update.step, _convolution.conv_step):
            operation.known.clear()  # what was called before does not get there

        def check(made, tensors, *options):
            if made._name not in checked:
                checked.add(made._name)
                own = [None if t is None else t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]
                torch.library.opcheck(made, (*own, *options))
            return real_call(made, tensors, *options)

        with contextlib.ExitStack() as patches:
            for module in (_scan, _chunk_scan, _state_update, _convolution):
                patches.enter_context(mock.patch.object(module, "call", check))
            for function, arguments in examples().values():
                has_gradients = "update" not in function.__name__
                given = {
                    k: v.requires_grad_(has_gradients and v.is_floating_point()) if torch.is_tensor(v) else v
                    for k, v in arguments.items()
                }
                values = function(**given)
                if has_gradients:
                    sum(v.sum() for v in (values if isinstance(values, tuple) else (values,))).backward()
        self.assertEqual(len(checked), 8)

    def test_compile(self):
        for name, (function, arguments) in examples().items():
            with self.subTest(name):
                copies = [
                    {k: v.clone() if torch.is_tensor(v) else v for k, v in arguments.items()} for _ in range(2)
                ]
                compiled = torch.compile(lambda a: function(**a), fullgraph=True, backend="aot_eager")
                values, expected = compiled(copies[0]), function(**copies[1])
                values, expected = (v if isinstance(v, tuple) else (v,) for v in (values, expected))
                for value, right in zip(values, expected):
                    self.assertTrue(torch.equal(value, right))
                    self.assertEqual(value.stride(), right.stride())
                for key, value in copies[0].items():  # the states, too
                    if torch.is_tensor(value):
                        self.assertTrue(torch.equal(value, copies[1][key]), key)

    def test_compiled_gradients(self):
        function, arguments = examples()["selective_scan"]
        gradients = []
        for run in (function, torch.compile(function, fullgraph=True, backend="aot_eager")):
            own = {k: v.clone().requires_grad_() if torch.is_tensor(v) else v for k, v in arguments.items()}
            run(**own).square().sum().backward()
            gradients.append([v.grad for v in own.values() if torch.is_tensor(v)])
        for eager, compiled in zip(*gradients):
            self.assertTrue(torch.equal(eager, compiled))

    def test_gradients_past_the_dispatcher(self):
        """Have the bits of those that the operators have, which others may see."""
        for name in ("selective_scan", "mamba_chunk_scan", "causal_conv1d"):
            function, arguments = examples()[name]
            own = {k: v.requires_grad_() if torch.is_tensor(v) else v for k, v in arguments.items()}
            leaves = [v for v in own.values() if torch.is_tensor(v)]
            gradients = []
            for plain in (True, False):
                with mock.patch.object(_operation, "is_plain", return_value=plain):
                    values = function(**own)
                values = [v for v in (values if isinstance(values, tuple) else (values,)) if v.requires_grad]
                gradients.append(torch.autograd.grad(sum(v.square().sum() for v in values), leaves))
            with self.subTest(name):
                self.assertTrue(all(map(torch.equal, *gradients)))

    def test_repeated_calls(self):
        """Go to the library at once, and not where something that matters is another."""
        for name, (function, arguments) in examples().items():
            with self.subTest(name):
                states = [k for k in ("state", "conv_state") if k in arguments]

                def run(**changes):
                    own = arguments | changes | {k: arguments[k].clone() for k in states}
                    values = function(**own)
                    return [*(values if isinstance(values, tuple) else (values,)), *[own[k] for k in states]]

                right = run()
                with mock.patch.object(_operation.Operation, "__call__", side_effect=AssertionError):
                    again = run()
                self.assertTrue(all(map(torch.equal, again, right)))
                first = next(iter(k for k in arguments if k not in states))
                apart = torch.stack([arguments[first]] * 2, -1)[..., 0]
                self.assertTrue(all(map(torch.equal, run(**{first: apart}), right)))
                if "conv_state" not in arguments:  # which has the dtype of x
                    half = run(**{first: arguments[first].bfloat16()})
                    self.assertEqual(half[0].dtype, torch.bfloat16)
                if not states:
                    leaf = {first: arguments[first].clone().requires_grad_()}
                    for _ in range(2):
                        with torch.no_grad():
                            self.assertFalse(run(**leaf)[0].requires_grad)
                        self.assertTrue(run(**leaf)[0].requires_grad)

    def test_one_tensor_in_two_places(self):
        """Is not taken for one in both when it is two."""
        arguments = scan_arguments(Draw())
        _scan.scan_forward.known.clear()
        kernels.selective_scan(**arguments | dict(z=arguments["u"]))
        self.assertFalse(_scan.scan_forward.known)
        other = kernels.selective_scan(**arguments)
        _scan.scan_forward.known.clear()
        self.assertTrue(torch.equal(other, kernels.selective_scan(**arguments)))

    def test_only_plain_calls_go_past_the_operators(self):
        tensor = torch.zeros(3, device=DEVICE)
        self.assertTrue(_operation.is_direct((tensor, None,)))
        leaf = torch.zeros(3, requires_grad=True, device=DEVICE)
        self.assertFalse(_operation.is_direct((tensor, leaf,)))
        with torch.no_grad():
            self.assertTrue(_operation.is_direct((tensor, leaf,)))
        with FakeTensorMode() as mode:
            self.assertFalse(_operation.is_direct((tensor,)))
        self.assertFalse(_operation.is_direct((mode.from_tensor(tensor),)))
        seen = []
        torch.func.vmap(lambda t: (seen.append(_operation.is_direct((t,))), t)[1])(tensor)
        self.assertEqual(seen, [False])


@unittest.skipUnless(DEVICE == "cuda", "needs a GPU")
class Streams(unittest.TestCase):
    def copies(self, arguments, factor=1):
        return {k: v * factor if torch.is_tensor(v) else v for k, v in arguments.items()}

    def run_both(self, run):
        """run(function, arguments): results, and the arguments after the call. Compares with a call as usual."""
        for name, (function, arguments) in examples().items():
            with self.subTest(name):
                right = self.copies(arguments, 0.5)
                expected = function(**right)
                values, own = run(function, arguments)
                values, expected = (v if isinstance(v, tuple) else (v,) for v in (values, expected))
                self.assertTrue(all(map(torch.equal, values, expected)))
                for key, tensor in right.items():  # the states, too
                    if torch.is_tensor(tensor):
                        self.assertTrue(torch.equal(own[key], tensor), key)

    def test_work_goes_to_the_current_stream_and_waits_for_nothing(self):
        def run(function, arguments):
            with torch.cuda.stream(torch.cuda.Stream()):
                function(**self.copies(arguments))  # gets the allocator its memory
                torch.cuda.current_stream().synchronize()
                torch.cuda._sleep(200_000_000)
                own = self.copies(arguments, 0.5)
                values = function(**own)
                self.assertFalse(torch.cuda.current_stream().query())
                torch.cuda.current_stream().synchronize()
            return values, own

        self.run_both(run)

    def test_graphs(self):
        def run(function, arguments):
            own = self.copies(arguments)
            function(**own)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                values = function(**own)
            for key, tensor in self.copies(arguments, 0.5).items():
                if torch.is_tensor(tensor):
                    own[key].copy_(tensor)
            graph.replay()
            return values, own

        self.run_both(run)


class Refusals(unittest.TestCase):
    def expect(self, error, words, function, **changes):
        _, arguments = examples()[function.__name__]
        with self.assertRaisesRegex(error, words):
            function(**(arguments | changes))

    def test_arguments(self):
        draw = Draw()
        self.expect(ValueError, "tensor 'delta' has shape", kernels.selective_scan, delta=draw.positive(2, 6, 18))
        four_groups = draw.normal(2, 4, 5, 19)
        self.expect(ValueError, "dim 6 is not a multiple of groups 4", kernels.selective_scan, B=four_groups)
        self.expect(ValueError, "width 9", kernels.causal_conv1d, weight=draw.normal(6, 9))
        self.expect(ValueError, "no elements", kernels.causal_conv1d, x=draw.normal(2, 6, 0))
        self.expect(NotImplementedError, "activation 'relu'", kernels.causal_conv1d, activation="relu")
        _scan.scan_forward.placed.clear()
        _scan.scan_forward.known.clear()
        self.expect(ValueError, f"u on {DEVICE}", kernels.selective_scan, delta=torch.empty(2, 6, 19, device="meta"))
        double = draw.normal(2, 6, 3).double()
        self.expect(TypeError, "conv_state is torch.float64", kernels.causal_conv1d_update, conv_state=double)
        self.expect(ValueError, "needs cu_seqlens", kernels.mamba_chunk_scan, return_varlen_states=True)

    def test_no_second_derivative(self):
        function, arguments = examples()["selective_scan"]
        u = arguments["u"].requires_grad_()
        (gradient,) = torch.autograd.grad(function(**arguments).sum(), u, create_graph=True)
        with self.assertRaises(RuntimeError):
            torch.autograd.grad(gradient.sum(), u)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
