"""ssmbench's kernels in JAX: the functions of ssmbench.torch on JAX arrays, on the CPU and on CUDA devices.

    from ssmbench.jax import selective_scan, mamba_chunk_scan, selective_state_update
    from ssmbench.jax import causal_conv1d, causal_conv1d_update

Nothing is updated in place: updates return the new state before out. jit and grad work, vmap one element after another.
The handlers that XLA calls are compiled on import, once for each version of jaxlib, which takes a C++17 compiler.
"""

import ctypes
import functools
import hashlib
import os
import pathlib
import subprocess
import tempfile

import jax
import jaxlib
import numpy
from jax import numpy as jnp

from . import _operations
from ._library import INPUT, OUTPUT, PREFIX, library
from ._operations import Shaped

__all__ = ["selective_scan", "mamba_chunk_scan", "selective_state_update", "causal_conv1d", "causal_conv1d_update"]

SOURCE = pathlib.Path(__file__).with_name("_jax_handlers.cc")
HEADERS = pathlib.Path(__file__).resolve().parents[3] / "plugins"  # in a checkout; else where the compiler looks
NAMES = {
    numpy.dtype("float32"): "f32",
    numpy.dtype("float16"): "f16",
    numpy.dtype(jnp.bfloat16): "bf16",
    numpy.dtype("complex64"): "c64",
    numpy.dtype("int32"): "i32",
}
IO_DTYPES = tuple(numpy.dtype(dtype) for dtype in ("float32", "float16", jnp.bfloat16))


# The handlers.


def compiled_handlers():
    """The shared library of SOURCE, from the cache of the user if it is there."""
    key = hashlib.sha256(SOURCE.read_bytes() + jaxlib.__version__.encode()).hexdigest()[:16]
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "ssmbench"
    file = cache / f"jax-{key}.so"
    if file.exists():
        return file
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        made = os.path.join(folder, "handlers.so")
        command = [os.environ.get("CXX", "c++"), "-std=c++17", "-O1", "-fPIC", "-shared"]
        command += ["-I", str(HEADERS), "-I", jax.ffi.include_dir(), str(SOURCE), "-o", made]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError:
            raise ImportError(f"ssmbench.jax needs a C++ compiler, and there is no {command[0]} (CXX names one)") from None
        except subprocess.CalledProcessError as error:
            raise ImportError(f"ssmbench.jax: {' '.join(command)}:\n{error.stderr}") from None
        os.replace(made, file)
    return file


def register():
    handlers = ctypes.CDLL(str(compiled_handlers()))
    names = ("describe", "bind", "launch", "release")
    functions = [getattr(library(), "ssmbench_plugin_" + name) for name in names]
    addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in functions]
    handlers.ssmbench_jax_connect((ctypes.c_void_p * len(addresses))(*addresses))
    for device, platform in (("cpu", "cpu"), ("cuda", "CUDA")):
        handler = getattr(handlers, "ssmbench_jax_" + device)
        jax.ffi.register_ffi_target("ssmbench_" + device, jax.ffi.pycapsule(handler), platform=platform)


register()


# Calls.


def shaped(array):
    if array is None:
        return None
    if array.dtype not in NAMES:
        raise TypeError(f"{array.dtype} is no dtype of the kernels")
    return Shaped(tuple(array.shape), NAMES[array.dtype])


def like(array, dtype=None):
    return None if array is None else jax.ShapeDtypeStruct(array.shape, dtype or array.dtype)


def call(spec, inputs, outputs, options=()):
    """The outputs of an operation, in the order of the specification, with None where there is none.

    outputs: shapes of those that are only written; what is updated comes first.
    """
    device = "cpu" if jax.default_backend() == "cpu" else "cuda"
    given = [(name, role) for name, role, _ in spec.tensors]
    plan = spec.plan(device, [shaped(array) for array in (*inputs, *outputs)], options)
    arguments = [(name, role, array) for (name, role), array in zip(given, inputs) if array is not None]
    results = [(name, role, like(array)) for name, role, array in arguments if role & OUTPUT]
    results += [(name, role, array) for (name, role), array in zip(given[len(inputs) :], outputs) if array is not None]
    tensors = [name + ("+" if role == INPUT | OUTPUT else "") for name, role, _ in (*arguments, *results)]
    shapes = [shape for _, _, shape in results]
    if plan.workspace_bytes:
        tensors.append("workspace")
        shapes.append(jax.ShapeDtypeStruct((plan.workspace_bytes,), numpy.uint8))
    updated = [i for i, (_, role, _) in enumerate(arguments) if role & OUTPUT]
    values = jax.ffi.ffi_call(
        "ssmbench_" + device,
        shapes,
        vmap_method="sequential",
        input_output_aliases={i: place for place, i in enumerate(updated)},
    )(
        *[array for _, _, array in arguments],
        op=spec.name,
        implementation=PREFIX + plan.name,
        axes="\n".join(f"{a.name.decode()}={a.text.decode()}" for a in plan.attributes),
        tensors=" ".join(tensors),
    )
    values = iter(values)
    return [next(values) for _ in updated] + [None if shape is None else next(values) for shape in outputs]


def io_dtype(*arrays):
    """What sequences are computed from: their common dtype, or f32 if they have several."""
    dtypes = {array.dtype for array in arrays if array is not None}
    dtype = dtypes.pop()
    return dtype if not dtypes and dtype in IO_DTYPES else numpy.dtype("float32")


def converted(array, dtype):
    return None if array is None else jnp.asarray(array, dtype)


def arrays(*values):
    return [None if value is None else jnp.asarray(value) for value in values]


# Mamba-1's selective scan.


def run_scan(inputs, options):
    u, _, A = inputs[:3]
    state = jax.ShapeDtypeStruct((u.shape[0], *A.shape), A.dtype)
    return tuple(call(_operations.scan_forward, inputs, (like(u), state), options))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def scan(inputs, options):
    return run_scan(inputs, options)


def scan_fwd(inputs, options):
    return run_scan(inputs, options), inputs


def scan_bwd(options, inputs, cotangents):
    outputs = [like(array) for array in inputs]
    gradients = call(_operations.scan_backward, (*inputs, cotangents[0]), outputs, options)
    # The kernels' gradient of a complex number is that of PyTorch: the conjugate.
    return (tuple(None if g is None else jnp.conj(g) if jnp.iscomplexobj(g) else g for g in gradients),)


scan.defvjp(scan_fwd, scan_bwd)


def projection(array, dtype, is_complex):
    """B or C as the library has it: (dim, dstate), or (batch, groups, dstate, seqlen)."""
    if array.ndim == 2:
        return converted(array, numpy.complex64 if is_complex else numpy.float32)
    if array.ndim == 3:
        array = array[:, None]
    if is_complex:
        array = array.astype(numpy.float32)
        return jax.lax.complex(array[..., 0::2], array[..., 1::2])
    return converted(array, dtype)


def selective_scan(
    u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, return_last_state=False
):
    """Mamba-1's selective scan; the arguments are those of ssmbench.torch.selective_scan."""
    u, delta, A, B, C, D, z, delta_bias = arrays(u, delta, A, B, C, D, z, delta_bias)
    is_complex = jnp.iscomplexobj(A)
    variable = [] if is_complex else [array for array in (B, C) if array.ndim > 2]
    dtype = io_dtype(u, delta, z, *variable)
    inputs = (
        converted(u, dtype),
        converted(delta, dtype),
        converted(A, numpy.complex64 if is_complex else numpy.float32),
        projection(B, dtype, is_complex),
        projection(C, dtype, is_complex),
        converted(D, numpy.float32),
        converted(z, dtype),
        converted(delta_bias, numpy.float32),
    )
    out, last_state = scan(inputs, (bool(delta_softplus),))
    out = out.astype(u.dtype)
    return (out, jax.lax.stop_gradient(last_state)) if return_last_state else out


# Mamba-2's chunked scan.


def run_ssd(inputs, options):
    x, B, final_states = inputs[0], inputs[3], options[4]
    states = jax.ShapeDtypeStruct((x.shape[0], *x.shape[2:], B.shape[3]), numpy.float32) if final_states else None
    return tuple(call(_operations.ssd_forward, (*inputs, None), (like(x), states), (*options, False)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def ssd(inputs, options):
    return run_ssd(inputs, options)


def ssd_fwd(inputs, options):
    return run_ssd(inputs, options), inputs


def ssd_bwd(options, inputs, cotangents):
    outputs = [like(array) for array in inputs[:9]]
    gradients = call(_operations.ssd_backward, (*inputs, *cotangents), outputs, (*options, True))
    return ((*gradients, None),)


ssd.defvjp(ssd_fwd, ssd_bwd)

MOST_STEPS_OF_A_CHUNK = 256  # the results are the same for every chunk size


def mamba_chunk_scan(
    x,
    dt,
    A,
    B,
    C,
    chunk_size,
    D=None,
    z=None,
    dt_bias=None,
    initial_states=None,
    seq_idx=None,
    dt_softplus=False,
    dt_limit=(0.0, float("inf")),
    return_final_states=False,
):
    """Mamba-2's scan (SSD); the arguments are those of ssmbench.torch.mamba_chunk_scan, without varlen states."""
    x, dt, A, B, C, D, z, dt_bias = arrays(x, dt, A, B, C, D, z, dt_bias)
    dtype = io_dtype(x, dt, B, C, z)
    f32 = numpy.float32
    inputs = (
        *[converted(array, dtype) for array in (x, dt)],
        converted(A, f32),
        *[converted(array, dtype) for array in (B, C)],
        converted(D, f32),
        converted(z, dtype),
        *[converted(array, f32) for array in (dt_bias, initial_states)],
        converted(seq_idx, numpy.int32),
    )
    limits = tuple(float(limit) for limit in dt_limit)
    options = (min(chunk_size, MOST_STEPS_OF_A_CHUNK), bool(dt_softplus), *limits, bool(return_final_states))
    out, states = ssd(inputs, options)
    out = out.astype(x.dtype)
    return (out, states) if return_final_states else out


# A decoding step of either.


def selective_state_update(
    state, x, dt, A, B, C, D=None, z=None, dt_bias=None, dt_softplus=False, state_batch_indices=None
):
    """A decoding step: (new state, out). State and x as in Mamba-1, or with heads and one number a head for Mamba-2.

    Mamba-1: state (batch, dim, dstate), A (dim, dstate), dt (batch, dim), D, dt_bias (dim,). Mamba-2: state (batch,
    nheads, headdim, dstate), A, D, dt_bias (nheads,), dt (batch, nheads). B, C: (batch, dstate) or (batch, groups,
    dstate), of which Mamba-2 takes the latter. state_batch_indices (batch,): the row of state that each row of x has.
    """
    state, x, dt, A, B, C, D, z, dt_bias = arrays(state, x, dt, A, B, C, D, z, dt_bias)
    if state.ndim == 3 and B.ndim == 3 and B.shape[1] == 1:
        B, C = B[:, 0], C[:, 0]
    dtype = io_dtype(x, B, C, z)
    f32 = numpy.float32
    source = converted(state_batch_indices, numpy.int32)
    inputs = (
        state,
        converted(x, dtype),
        dt if dt.dtype == dtype else dt.astype(f32),
        converted(A, f32),
        *[converted(array, dtype) for array in (B, C)],
        converted(D, f32),
        converted(z, dtype),
        converted(dt_bias, f32),
        source,
        None if source is None else source[:, None],
    )
    state, out = call(_operations.step, inputs, (like(inputs[1]),), (bool(dt_softplus),))
    return state, out.astype(x.dtype)


# The convolution in front of a scan.


def run_conv(inputs, options):
    x, weight = inputs[:2]
    states = jax.ShapeDtypeStruct((*x.shape[:2], weight.shape[1] - 1), x.dtype) if options[1] else None
    return tuple(call(_operations.conv_forward, inputs, (like(x), states), options))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def conv(inputs, options):
    return run_conv(inputs, options)


def conv_fwd(inputs, options):
    return run_conv(inputs, options), inputs


def conv_bwd(options, inputs, cotangents):
    x, weight, bias, initial_states, _ = inputs
    sums = numpy.float32  # those of weight and bias
    outputs = (like(x), like(weight, sums), like(bias, sums), like(initial_states))
    gradients = call(_operations.conv_backward, (*inputs, *cotangents), outputs, options)
    return ((*[None if g is None else g.astype(t.dtype) for g, t in zip(gradients, inputs)], None),)


conv.defvjp(conv_fwd, conv_bwd)


def is_silu(activation):
    if activation not in (None, "silu", "swish"):
        raise NotImplementedError(f"activation {activation!r}: expected None, 'silu' or 'swish'")
    return activation is not None


def conv_weights(x, weight, bias):
    """In the dtype of x where both have it, else in f32."""
    weight, bias = arrays(weight, bias)
    dtype = io_dtype(x, weight, bias)
    return converted(weight, dtype), converted(bias, dtype)


def causal_conv1d(
    x, weight, bias=None, seq_idx=None, initial_states=None, return_final_states=False, activation=None
):
    """Causal depthwise convolution; the arguments are those of ssmbench.torch.causal_conv1d."""
    x = jnp.asarray(x)
    weight, bias = conv_weights(x, weight, bias)
    inputs = (x, weight, bias, converted(initial_states, x.dtype), converted(seq_idx, numpy.int32))
    out, states = conv(inputs, (is_silu(activation), bool(return_final_states)))
    return (out, states) if return_final_states else out


def causal_conv1d_update(x, conv_state, weight, bias=None, activation=None, conv_state_indices=None):
    """Decoding steps of the convolution: (new conv_state, out).

    The arguments are those of ssmbench.torch.causal_conv1d_update, without cache_seqlens.
    """
    x, conv_state = arrays(x, conv_state)
    weight, bias = conv_weights(x, weight, bias)
    rows = x.swapaxes(1, 2) if x.ndim == 3 else x
    single = x.ndim == 3 and rows.shape[1] == 1
    rows = rows[:, 0] if single else rows
    slots = converted(conv_state_indices, numpy.int32)
    inputs = (conv_state, rows, weight, bias, slots, slots)
    conv_state, out = call(_operations.conv_step, inputs, (like(rows),), (is_silu(activation),))
    if x.ndim == 3:
        out = out[:, :, None] if single else out.swapaxes(1, 2)
    return conv_state, out
