"""What plugins/python/bridge.c runs in ssmbench's process: the functions of a plugin, for the kernels of a file."""

import ctypes
import functools
import importlib.util
import inspect
import itertools
import os
import sys
import traceback
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int32, c_void_p

from . import _interface, _kernel
from ._frameworks import framework
from ._interface import Case, Problem, Span

OFF = (False, "none")  # what an axis says where the tensor of its name is missing
MOST_CHARACTERS = 400  # of a message, which a compiler may write pages of

user_files = []  # in the order in which they were opened
described = []  # what ssmbench was told of each: it stays valid
kept = []  # of what C has addresses
bindings = {}  # by handle
next_handle = itertools.count(1)
latest_text = None


class Wrong(Exception):
    """What is wrong, in words that need no more."""


def told(text):
    """The text for C; it stays until the next."""
    global latest_text
    latest_text = ctypes.create_string_buffer(text.encode(errors="replace"))
    return ctypes.addressof(latest_text)


def line_of(error):
    """An exception in a line: what it is, what it says, and where the user's file raised it."""
    if isinstance(error, Wrong):
        return str(error)
    says = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
    if len(says) > MOST_CHARACTERS:
        says = says[:MOST_CHARACTERS] + " ..."
    if "GLIBCXX" in says:
        says += "; LD_LIBRARY_PATH=$CONDA_PREFIX/lib lets the program use that of the environment"
    frames = traceback.extract_tb(error.__traceback__)
    where = next((f for f in reversed(frames) if f.filename in user_files), None)
    place = f" ({os.path.basename(where.filename)}:{where.lineno})" if where else ""
    return f"{type(error).__name__}{': ' if says else ''}{says}{place}"


def without_exceptions(function):
    """Exceptions become the text that is returned: nothing may leave for C, not even SystemExit."""

    @functools.wraps(function)
    def wrapped(*arguments):
        try:
            return function(*arguments)
        except BaseException as error:
            if os.environ.get("SSMBENCH_PYTHON_TRACEBACK"):
                traceback.print_exc()
            return told(line_of(error))

    return wrapped


def open_file(path):
    path = os.fsdecode(path)
    first = len(_kernel.registered)
    user_files.append(path)
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    new = _kernel.registered[first:]
    if not new:
        raise Wrong("decorates no function with @ssmbench.kernel(...); see plugins/README.md")
    for kernel in new:
        framework(kernel.framework, kernel.device)  # or says that it is not installed
    described.append(describe(first, new))


def describe(first, kernels):
    all_of_them = (_interface.Implementation * len(kernels))()
    for to, kernel in zip(all_of_them, kernels):
        to.name, to.op = kernel.name.encode(), kernel.op.encode()
        copies = "; its time holds a copy of what it returns" if kernel.returns else ""
        to.summary = (kernel.summary + copies).encode()
        to.device = _kernel.DEVICES.index(kernel.device)
        to.deterministic = kernel.deterministic
        to.math[:] = [_kernel.MATHS.index(claim) for claim in kernel.math]
        to.state_dtype[:] = [_kernel.STATE_DTYPES.index(claim) for claim in kernel.state_dtype]
    return _interface.Plugin(_interface.ABI_VERSION, len(kernels), all_of_them, first)


def why_not(kernel, case):
    lacking = framework(kernel.framework, kernel.device).lacks(case.dtype)
    return lacking or (kernel.unsupported(case) if kernel.unsupported else None)


def unsupported(index, problem):
    kernel = _kernel.registered[index]
    try:
        reason = why_not(kernel, Case(problem[0]))
    except Exception:
        return None  # binding asks again, and fails with it
    return None if reason is None else told(str(reason))


class Binding:
    """A kernel with its arguments, ready to be called."""

    def __init__(self, kernel, problem):
        self.kernel = kernel
        self.framework = framework(kernel.framework, kernel.device)
        case = Case(problem)
        if reason := why_not(kernel, case):
            raise Wrong(str(reason))
        spans = [Span(tensor) for tensor in problem.tensors[: problem.tensor_count]]
        self.arrays = {span.name: self.framework.array(span) for span in spans}
        self.known = {"case": case, "tensors": self.arrays, **case.axes, **self.arrays}
        self.op = case.op
        if kernel.prepare:
            self.known["prepared"] = kernel.prepare(**self.arguments(kernel.prepare))
        self.function = functools.partial(kernel.function, **self.arguments(kernel.function))

    def arguments(self, function):
        chosen = {}
        for name, parameter in inspect.signature(function).parameters.items():
            has_default = parameter.default is not parameter.empty
            if name not in self.known and not has_default:
                raise Wrong(
                    f"{function.__name__}: {self.op} has no {name!r} here; "
                    f"a parameter with a default need not be there"
                )
            value = self.known.get(name, False)
            if isinstance(value, (bool, str)) and value in OFF:
                value = parameter.default if has_default else None
            chosen[name] = value
        return chosen

    def launch(self, stream):
        with self.framework.on(stream):
            returned = self.function()
            if self.kernel.returns:
                self.copy(returned)

    def copy(self, returned):
        """What was returned, in the order of `returns` or by name, to the outputs that the case has."""
        names = self.kernel.returns
        if not isinstance(returned, dict):
            values = returned if isinstance(returned, (tuple, list)) else (returned,)
            if len(values) != len(names):
                raise Wrong(f"returns={names}: returned {len(values)} arrays")
            returned = dict(zip(names, values))
        for name in names:
            output = self.arrays.get(name)
            if output is None:
                continue
            value = returned.get(name)
            if value is None:
                raise Wrong(f"returned no {name}")
            if tuple(value.shape) != tuple(output.shape):
                raise Wrong(f"returned {name} of shape {tuple(value.shape)}, not {tuple(output.shape)}")
            self.framework.copy(output, value)


def bind(index, problem, handle):
    binding = Binding(_kernel.registered[index], problem[0])
    binding.launch(None)  # compiles, tunes, and fails here where it fails always
    binding.framework.synchronize()
    handle[0] = next(next_handle)
    bindings[handle[0]] = binding


def launch(handle, stream):
    bindings[handle].launch(stream)


def release(handle):
    binding = bindings.pop(handle)
    if not bindings:
        chosen = binding.framework
        del binding
        chosen.forget()


def connect(address):
    """Hands over the functions, in the order of the structure in bridge.c."""
    sys.stdout = sys.stderr  # ssmbench's stdout may be a file of results
    functions = [
        CFUNCTYPE(c_void_p, c_char_p)(without_exceptions(open_file)),
        CFUNCTYPE(c_void_p)(lambda: ctypes.addressof(described[-1])),
        CFUNCTYPE(c_void_p, c_int32, POINTER(Problem))(without_exceptions(unsupported)),
        CFUNCTYPE(c_void_p, c_int32, POINTER(Problem), POINTER(c_void_p))(without_exceptions(bind)),
        CFUNCTYPE(c_void_p, c_void_p, c_void_p)(without_exceptions(launch)),
        CFUNCTYPE(None, c_void_p)(release),
    ]
    kept.append(functions)
    table = (c_void_p * len(functions)).from_address(address)
    table[:] = [ctypes.cast(function, c_void_p).value for function in functions]
