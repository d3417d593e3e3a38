"""The decorator that makes a function an implementation."""

import dataclasses
import inspect
from collections.abc import Callable

MATHS = ("f32", "f64", "tf32", "f16", "bf16")  # in the order of SSMBENCH_MATH_...
STATE_DTYPES = ("f32", "f64", "f16", "bf16")  # in the order of the storage types
DEVICES = ("cpu", "cuda")
FRAMEWORKS = {"cpu": ("numpy", "torch"), "cuda": ("torch", "cupy")}  # the first is what is used if none is named
IO_DTYPES = ("f32", "f16", "bf16")


@dataclasses.dataclass(frozen=True)
class Kernel:
    """An implementation, as its decorator describes it."""

    function: Callable
    op: str
    name: str
    summary: str
    device: str
    framework: str
    math: tuple  # for each of IO_DTYPES
    state_dtype: tuple
    deterministic: bool
    unsupported: Callable | None
    prepare: Callable | None
    returns: tuple


registered: list[Kernel] = []  # in the order in which files declare them


def kernel(
    op,
    *,
    name=None,
    device="cuda",
    framework=None,
    math="f32",
    state_dtype="f32",
    deterministic=False,
    unsupported=None,
    prepare=None,
    returns=(),
):
    """Makes the function below it an implementation of the operation `op`, and leaves the function as it is.

    The function's parameters are chosen by name. A tensor of the operation's definition is an array that aliases
    ssmbench's memory; outputs are written in place, and a tensor that is both holds the input. An axis of the
    operation ("method", "chunk_size") is a number, a flag, a word or a pair; `case` has them all, `tensors` all tensors
    by name, and `prepared` is what `prepare` returned. What a case does not have, a flag that is off and a
    choice that is "none" are the parameter's default, or None.

    device: "cuda" or "cpu".
    framework: of the arrays: "torch" or "cupy" on a GPU, "numpy" or "torch" on the CPU; else the first of these.
    math, state_dtype: what is computed in, and what states between chunks are stored in: claims, from which
        tolerances follow. One for all, or by the case's dtype: {"f32": "tf32", "bf16": "bf16"}.
    deterministic: equal inputs give equal bits, always.
    unsupported: a function of the case; returns why the kernel cannot do it, or None.
    prepare: a function with parameters as above, called once for each case, not timed.
    returns: names of outputs, if the function returns them, in this order or by name in a dict, instead of writing
        in place. Those that the case has are copied, and the copy is in the time.
    """

    def register(function):
        chosen = framework or FRAMEWORKS.get(device, ("",))[0]
        made = Kernel(
            function=function,
            op=op,
            name=name or function.__name__.replace("_", "-"),
            summary=(inspect.getdoc(function) or "").split("\n")[0],
            device=device,
            framework=chosen,
            math=claims("math", math, MATHS),
            state_dtype=claims("state_dtype", state_dtype, STATE_DTYPES),
            deterministic=bool(deterministic),
            unsupported=unsupported,
            prepare=prepare,
            returns=(returns,) if isinstance(returns, str) else tuple(returns),
        )
        check(made)
        registered.append(made)
        return function

    return register


def claims(what, value, known):
    """A claim for each of IO_DTYPES."""
    by_dtype = value if isinstance(value, dict) else dict.fromkeys(IO_DTYPES, value)
    for dtype, claim in by_dtype.items():
        if dtype not in IO_DTYPES or claim not in known:
            raise ValueError(f"{what} {claim!r} for {dtype!r}: expected one of {known} for one of {IO_DTYPES}")
    return tuple(by_dtype.get(dtype, "f32") for dtype in IO_DTYPES)


def check(made):
    if made.device not in DEVICES:
        raise ValueError(f"{made.name}: device {made.device!r}: expected one of {DEVICES}")
    if made.framework not in FRAMEWORKS[made.device]:
        raise ValueError(
            f"{made.name}: framework {made.framework!r} on {made.device}: "
            f"expected one of {FRAMEWORKS[made.device]}"
        )
    for function in (made.function, made.prepare):
        if function is None:
            continue
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise TypeError(f"{made.name}: parameter {parameter}: parameters are chosen by name")
