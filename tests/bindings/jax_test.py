"""ssmbench.jax against definitions in jax.numpy, on the CPU: values, gradients, jit, vmap, what is refused."""

import unittest

import jax

jax.config.update("jax_enable_x64", True)

import numpy
from jax import numpy as jnp
from ssmbench import jax as kernels

TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-2}  # of the largest element


class Draw:
    def __init__(self, seed=0):
        self.generator = numpy.random.default_rng(seed)

    def normal(self, *shape, dtype="float32"):
        return jnp.asarray(self.generator.standard_normal(shape), dtype)

    def positive(self, *shape, dtype="float32"):
        return jnp.asarray(self.generator.random(shape) * 0.4 + 0.05, dtype)


def exact(array):
    if array is None or jnp.issubdtype(array.dtype, jnp.integer):
        return array
    return array.astype("complex128" if jnp.iscomplexobj(array) else "float64")


def per_channel(projection, dim, is_complex):
    if projection.ndim == 2:
        return projection[None, :, :, None]
    if is_complex:
        projection = projection[..., 0::2] + 1j * projection[..., 1::2]
    grouped = projection if projection.ndim == 4 else projection[:, None]
    return jnp.repeat(grouped, dim // grouped.shape[1], axis=1)


def selective_scan(u, delta, A, B, C, D, z, delta_bias):
    """h = exp(delta A) h + delta B u, y = C h, with softplus."""
    is_complex = jnp.iscomplexobj(A)
    delta = jax.nn.softplus(delta + delta_bias[:, None])
    batch, dim, seqlen = u.shape
    B, C = (jnp.broadcast_to(per_channel(t, dim, is_complex), (batch, *A.shape, seqlen)) for t in (B, C))
    h, outputs = jnp.zeros((batch, *A.shape), A.dtype), []
    for t in range(seqlen):
        d = delta[:, :, t, None]
        h = jnp.exp(d * A) * h + d * B[..., t] * u[:, :, t, None]
        y = (C[..., t] * h).sum(-1)
        outputs.append(2 * y.real if is_complex else y)
    return (jnp.stack(outputs, 2) + u * D[:, None]) * jax.nn.silu(z), h


def chunk_scan(x, dt, A, B, C, D, z, dt_bias, initial_states, seq_idx=None):
    dt = jax.nn.softplus(dt + dt_bias)
    B, C = (jnp.repeat(t, x.shape[2] // t.shape[2], axis=2) for t in (B, C))
    h, outputs = initial_states, []
    for t in range(x.shape[1]):
        if seq_idx is not None and t > 0:
            h = h * (seq_idx[:, t] == seq_idx[:, t - 1])[:, None, None, None]
        h = jnp.exp(dt[:, t] * A)[..., None, None] * h + (dt[:, t, :, None] * x[:, t])[..., None] * B[:, t, :, None, :]
        outputs.append((h * C[:, t, :, None, :]).sum(-1))
    return (jnp.stack(outputs, 1) + x * D[:, None]) * jax.nn.silu(z), h


def convolution(x, weight, bias, initial_states):
    width, seqlen = weight.shape[1], x.shape[2]
    padded = jnp.concatenate([initial_states, x], 2)
    out = bias[:, None] + sum(weight[:, j, None] * padded[:, :, j : j + seqlen] for j in range(width))
    return jax.nn.silu(out), padded[:, :, seqlen:]


def scan_arguments(dtype="float32", groups=1, is_complex=False, constant=False):
    draw = Draw()
    batch, dim, dstate, seqlen = 2, 6, 5, 11
    A = -draw.positive(dim, dstate) * 4

    def projection():
        if constant:
            return draw.normal(dim, dstate) + 1j * draw.normal(dim, dstate) if is_complex else draw.normal(dim, dstate)
        group = (groups,) if groups > 1 else ()
        return draw.normal(batch, *group, dstate, seqlen * (2 if is_complex else 1), dtype=dtype)

    return dict(
        u=draw.normal(batch, dim, seqlen, dtype=dtype),
        delta=draw.positive(batch, dim, seqlen, dtype=dtype),
        A=A + 1j * draw.normal(dim, dstate) if is_complex else A,
        B=projection(),
        C=projection(),
        D=draw.normal(dim),
        z=draw.normal(batch, dim, seqlen, dtype=dtype),
        delta_bias=draw.normal(dim),
    )


def ssd_arguments(dtype="float32", groups=1):
    draw = Draw()
    batch, seqlen, heads, headdim, dstate = 2, 35, 4, 8, 16
    return dict(
        x=draw.normal(batch, seqlen, heads, headdim, dtype=dtype),
        dt=draw.positive(batch, seqlen, heads, dtype=dtype),
        A=-draw.positive(heads) * 4,
        B=draw.normal(batch, seqlen, groups, dstate, dtype=dtype),
        C=draw.normal(batch, seqlen, groups, dstate, dtype=dtype),
        D=draw.normal(heads),
        z=draw.normal(batch, seqlen, heads, headdim, dtype=dtype),
        dt_bias=draw.normal(heads),
        initial_states=draw.normal(batch, heads, headdim, dstate),
    )


class KernelTest(unittest.TestCase):
    def assert_close(self, name, value, expected, dtype="float32"):
        self.assertEqual(value.shape, expected.shape, name)
        error = float(jnp.abs(exact(value) - exact(expected)).max())
        self.assertLessEqual(error, TOLERANCE[dtype] * max(1e-3, float(jnp.abs(expected).max())), name)

    def check(self, function, reference, arguments, dtype="float32", outputs=2):
        """Outputs, and gradients for a cotangent of the first `outputs`, compiled."""
        wide = {k: exact(v) for k, v in arguments.items()}
        values, expected = jax.jit(function)(arguments), reference(wide)
        for i, (value, right) in enumerate(zip(values, expected)):
            self.assert_close(f"output {i}", value, right, dtype)
        draw = Draw(1)
        cotangents = [draw.normal(*value.shape, dtype=value.dtype) for value in values[:outputs]]
        pull = jax.jit(lambda a, c: jax.vjp(lambda a: list(function(a))[:outputs], a)[1](c)[0])
        gradients = pull(arguments, cotangents)
        right = jax.vjp(lambda a: list(reference(a))[:outputs], wide)[1]([exact(c) for c in cotangents])[0]
        for name, gradient in gradients.items():
            if gradient.dtype != jax.dtypes.float0:
                self.assertEqual(gradient.dtype, arguments[name].dtype, name)
                self.assert_close(f"gradient of {name}", gradient, right[name], dtype)

    def test_selective_scan(self):
        for options in (
            {},
            dict(groups=2),
            dict(dtype="bfloat16"),
            dict(is_complex=True),
            dict(constant=True),
            dict(is_complex=True, constant=True),
        ):
            with self.subTest(**options):
                self.check(
                    lambda a: kernels.selective_scan(**a, delta_softplus=True, return_last_state=True),
                    lambda a: selective_scan(**a),
                    scan_arguments(**options),
                    options.get("dtype", "float32"),
                    outputs=1,
                )

    def test_chunk_scan(self):
        run = lambda a: kernels.mamba_chunk_scan(**a, chunk_size=64, dt_softplus=True, return_final_states=True)
        for options in ({}, dict(groups=2), dict(dtype="bfloat16")):
            with self.subTest(**options):
                dtype = options.get("dtype", "float32")
                self.check(run, lambda a: chunk_scan(**a), ssd_arguments(**options), dtype)
        numbers = jnp.broadcast_to(jnp.arange(35) // 12, (2, 35)).astype("int32")
        self.check(
            lambda a: run(a | dict(seq_idx=numbers)), lambda a: chunk_scan(**a, seq_idx=numbers), ssd_arguments()
        )

    def test_state_update(self):
        draw = Draw()
        arguments = ssd_arguments()
        step = {k: v[:, 0] for k, v in arguments.items() if k in ("x", "dt", "B", "C", "z")}
        step |= {k: arguments[k] for k in ("A", "D", "dt_bias")}
        one = {k: v[:, :1] if k in ("x", "dt", "B", "C", "z") else exact(v) for k, v in arguments.items()}
        expected, right = chunk_scan(**{k: exact(v) for k, v in one.items()})
        state, out = jax.jit(lambda a: kernels.selective_state_update(**a, dt_softplus=True))(
            step | dict(state=arguments["initial_states"])
        )
        self.assert_close("out", out, expected[:, 0])
        self.assert_close("state", state, right)
        # In rows of a cache, which others keep.
        cache, rows = draw.normal(5, 4, 8, 16), jnp.asarray([3, 1])
        own, expected = kernels.selective_state_update(cache[rows], **step, dt_softplus=True)
        updated, out = kernels.selective_state_update(cache, **step, dt_softplus=True, state_batch_indices=rows)
        self.assertTrue(bool((out == expected).all()))
        self.assertTrue(bool((updated == cache.at[rows].set(own)).all()))

    def test_mamba1_update(self):
        arguments = scan_arguments()
        step = {k: v[..., 0] if v.ndim == 3 else v for k, v in arguments.items()}
        step["x"], step["dt"], step["dt_bias"] = step.pop("u"), step.pop("delta"), step.pop("delta_bias")
        first = {k: exact(v[..., :1] if v.ndim == 3 else v) for k, v in arguments.items()}
        expected, right = selective_scan(**first)
        state = jnp.zeros((2, 6, 5), "float32")
        updated, out = kernels.selective_state_update(state, **step, dt_softplus=True)
        self.assert_close("out", out, expected[..., 0])
        self.assert_close("state", updated, right)
        self.assertFalse(bool(state.any()))  # what was given stays

    def test_convolution(self):
        draw = Draw()
        for dtype in ("float32", "bfloat16"):
            arguments = dict(
                x=draw.normal(2, 10, 9, dtype=dtype),
                weight=draw.normal(10, 4, dtype=dtype),
                bias=draw.normal(10, dtype=dtype),
                initial_states=draw.normal(2, 10, 3, dtype=dtype),
            )
            self.check(
                lambda a: kernels.causal_conv1d(**a, return_final_states=True, activation="silu"),
                lambda a: convolution(**a),
                arguments,
                dtype,
            )
        numbers = jnp.broadcast_to(jnp.arange(9) // 3, (2, 9))
        out = kernels.causal_conv1d(arguments["x"], arguments["weight"], seq_idx=numbers)
        alone = kernels.causal_conv1d(arguments["x"][..., 3:6], arguments["weight"])
        self.assertTrue(bool((out[..., 3:6] == alone).all()))

    def test_convolution_update(self):
        draw = Draw()
        weight, bias, state = draw.normal(10, 4), draw.normal(10), draw.normal(2, 10, 3)
        for tokens in (1, 3):
            x = draw.normal(2, 10, tokens)
            expected, right = convolution(*map(exact, (x, weight, bias, state)))
            updated, out = kernels.causal_conv1d_update(x, state, weight, bias, "silu")
            self.assert_close("out", out, expected)
            self.assertTrue(bool((updated == right).all()))
        slots = draw.normal(4, 10, 3).at[jnp.asarray([2, 0])].set(state)
        updated, again = kernels.causal_conv1d_update(
            x, slots, weight, bias, "silu", conv_state_indices=jnp.asarray([2, 0])
        )
        self.assertTrue(bool((again == out).all()))
        self.assertTrue(bool((updated[jnp.asarray([1, 3])] == slots[jnp.asarray([1, 3])]).all()))

    def test_vmap(self):
        arguments = scan_arguments()
        two = {k: jnp.stack([v, v * 0.5]) for k, v in arguments.items()}
        values = jax.vmap(lambda a: kernels.selective_scan(**a))(two)
        for i in range(2):
            one = kernels.selective_scan(**{k: v[i] for k, v in two.items()})
            self.assertTrue(bool((values[i] == one).all()))

    def test_refusals(self):
        arguments = scan_arguments()
        with self.assertRaisesRegex(ValueError, "dim 6 is not a multiple of groups 4"):
            kernels.selective_scan(**arguments | dict(B=jnp.zeros((2, 4, 5, 11), "float32")))
        with self.assertRaisesRegex(Exception, "tensor 'delta' has shape"):
            kernels.selective_scan(**arguments | dict(delta=jnp.zeros((2, 6, 10), "float32")))
        with self.assertRaisesRegex(TypeError, "float64 is no dtype"):
            kernels.causal_conv1d(jnp.zeros((2, 6, 9)), jnp.zeros((6, 4)))


if __name__ == "__main__":
    unittest.main()
