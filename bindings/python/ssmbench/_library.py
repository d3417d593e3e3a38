"""libssmbench_kernels.so from Python: finds it, chooses implementations, binds and launches them."""

import collections
import ctypes
import functools
import math
import os
import pathlib
import threading

from . import _interface
from ._interface import Attribute, Plugin, Problem, Tensor

FILE = "libssmbench_kernels.so"
SONAME = FILE + ".2"  # the number is that of the ABI
PREFIX = "lib-"
INPUT, OUTPUT = 1, 2
DEVICES = {"cpu": 0, "cuda": 1}
# The first that can do the problem is taken; others only compare algorithms.
PREFERRED = (
    "cuda-hopper",
    "cuda-chunked",
    "cuda-fused",
    "cuda-step",
    "cuda-window",
    "cpu-simd",
    "cpu-step",
    "cpu-scalar",
)
MOST_HANDLES = 1024  # of one plan: layers of a model have memory of their own

# Functions of a plugin are called from one thread at a time.
lock = threading.Lock()


class Unsupported(ValueError):
    """Arguments that no implementation takes, with the reason."""


def candidates():
    """Where the library may be, best first."""
    if named := os.environ.get("SSMBENCH_KERNELS_LIBRARY"):
        return [named]
    here = pathlib.Path(__file__).resolve()
    tree = here.parents[3] / "build" / FILE  # a checkout, whose package is used in place
    installed = here.parents[3] / FILE  # lib/ssmbench/python/ssmbench, as `cmake --install` has it
    return [str(path) for path in (tree, installed) if path.exists()] + [SONAME]


@functools.cache
def library():
    """The library, with the types of its functions. Raises ImportError where there is none that fits."""
    wrong = []
    for path in candidates():
        try:
            found = ctypes.CDLL(path)
        except OSError as error:
            wrong.append(str(error))
            continue
        problem = ctypes.POINTER(Problem)
        for name, result, arguments in (
            ("describe", ctypes.POINTER(Plugin), []),
            ("unsupported", ctypes.c_char_p, [ctypes.c_int32, problem]),
            ("workspace_bytes", ctypes.c_int64, [ctypes.c_int32, problem]),
            ("bind", ctypes.c_char_p, [ctypes.c_int32, problem, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]),
            ("launch", ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_void_p]),
            ("release", None, [ctypes.c_void_p]),
        ):
            function = getattr(found, "ssmbench_plugin_" + name)
            function.restype, function.argtypes = result, arguments
        version = found.ssmbench_plugin_describe()[0].abi_version
        if version != _interface.ABI_VERSION:
            raise ImportError(f"{path} has ABI version {version}, this package {_interface.ABI_VERSION}")
        return found
    raise ImportError(
        f"{FILE} is not found: build ssmbench with -D SSMBENCH_KERNELS_LIBRARY=ON and install it, or name the "
        f"file in SSMBENCH_KERNELS_LIBRARY ({'; '.join(wrong)})"
    )


@functools.cache
def implementations(op, device):
    """(name, index) of those that may be taken for an operation, best first."""
    plugin = library().ssmbench_plugin_describe()[0]
    found = {}
    for i in range(plugin.implementation_count):
        described = plugin.implementations[i]
        if described.op.decode() == op and described.device == DEVICES.get(device):
            found[described.name.decode().removeprefix(PREFIX)] = plugin.first_index + i
    return [(name, found[name]) for name in PREFERRED if name in found]


def text_of(value):
    """An axis as configs have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "..".join("inf" if end == math.inf else repr(float(end)) for end in value)
    return str(value)


def attributes_of(axes):
    array = (Attribute * len(axes))()
    for to, (name, value) in zip(array, axes.items()):
        to.name, to.text = name.encode(), text_of(value).encode()
        to.integer = int(value) if isinstance(value, int) else 0
        if isinstance(value, tuple):
            to.low, to.high = value
    return array


class Plan:
    """An operation on tensors of given shapes: which implementation computes it, and what it was bound to.

    axes: the operation's, by name; those at their fallback may be missing.
    tensors: (name, dtype, shape, strides, role) of each, strides in elements.
    """

    def __init__(self, op, device, axes, tensors):
        self.tensors = (Tensor * len(tensors))()
        for to, (name, dtype, shape, strides, role) in zip(self.tensors, tensors):
            numbers = ctypes.c_int64 * max(1, len(shape))
            to.name, to.rank, to.role = name.encode(), len(shape), role
            to.dtype = _interface.DTYPES.index(dtype)
            to.shape, to.strides = numbers(*shape), numbers(*strides)
        self.attributes = attributes_of(axes)
        self.problem = Problem(
            op.encode(),
            self.tensors,
            self.attributes,
            len(tensors),
            len(axes),
            _interface.DTYPES.index(axes["dtype"]),
        )
        self.name, self.index = self.choose(op, device)
        self.workspace_bytes = library().ssmbench_plugin_workspace_bytes(self.index, self.problem)
        self.launch_function = library().ssmbench_plugin_launch
        self.handles = collections.OrderedDict()  # by addresses

    def choose(self, op, device):
        reasons = {}  # whose they are
        with lock:
            for name, index in implementations(op, device):
                reason = library().ssmbench_plugin_unsupported(index, self.problem)
                if reason is None:
                    return name, index
                reasons.setdefault(reason.decode(), []).append(name)
        if not reasons:
            raise Unsupported(f"{op}: the library has nothing for the device {device}")
        if len(reasons) == 1:
            raise Unsupported(f"{op}: {next(iter(reasons))}")
        raise Unsupported(f"{op}: " + "; ".join(f"{', '.join(names)}: {text}" for text, names in reasons.items()))

    def launch(self, addresses, workspace, stream):
        """Computes on tensors at these addresses, in the order of `tensors`; workspace is an address, or None.

        Binding to addresses that were not used before takes tens of microseconds; a caching allocator makes
        that rare.
        """
        key = (*addresses, workspace)
        with lock:
            handle = self.handles.get(key)
            if handle is None:
                handle = self.bind(key)
            wrong = self.launch_function(handle, stream)
            if wrong is not None:
                raise RuntimeError(f"{self.name}: {wrong.decode()}")

    def bind(self, key):
        for tensor, address in zip(self.tensors, key):
            tensor.data = address
        handle = ctypes.c_void_p()
        wrong = library().ssmbench_plugin_bind(self.index, self.problem, key[-1], handle)
        if wrong is not None:
            raise ValueError(f"{self.name}: {wrong.decode()}")
        if len(self.handles) >= MOST_HANDLES:
            library().ssmbench_plugin_release(self.handles.popitem(last=False)[1])
        self.handles[key] = handle
        return handle
