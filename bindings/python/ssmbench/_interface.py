"""plugins/ssmbench_plugin.h for ctypes: the structures, and what a problem looks like from Python."""

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_void_p

ABI_VERSION = 2
DTYPES = ("f32", "f64", "f16", "bf16", "c64", "i32", "i64", "i16", "i8", "e4m3")  # by SSMBENCH_F32, ...
ITEM_BYTES = dict(zip(DTYPES, (4, 8, 2, 2, 8, 4, 8, 2, 1, 1)))
OUTPUT = 2


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("data", c_void_p),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("rank", c_int32),
        ("dtype", c_int32),
        ("role", c_int32),
        ("reserved", c_int32),
    ]


class Attribute(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("text", c_char_p),
        ("integer", c_int64),
        ("low", c_double),
        ("high", c_double),
    ]


class Problem(ctypes.Structure):
    _fields_ = [
        ("op", c_char_p),
        ("tensors", POINTER(Tensor)),
        ("attributes", POINTER(Attribute)),
        ("tensor_count", c_int32),
        ("attribute_count", c_int32),
        ("dtype", c_int32),
        ("reserved", c_int32),
    ]


class Implementation(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("op", c_char_p),
        ("summary", c_char_p),
        ("device", c_int32),
        ("deterministic", c_int32),
        ("math", c_int32 * 3),
        ("state_dtype", c_int32 * 3),
    ]


class Plugin(ctypes.Structure):
    _fields_ = [
        ("abi_version", c_int32),
        ("implementation_count", c_int32),
        ("implementations", POINTER(Implementation)),
        ("first_index", c_int32),
    ]


class Span:
    """A tensor in memory: where it is and how it lies there. Strides are in elements."""

    def __init__(self, tensor):
        self.name = tensor.name.decode()
        self.data = tensor.data
        self.dtype = DTYPES[tensor.dtype]
        self.shape = tuple(tensor.shape[: tensor.rank])
        self.strides = tuple(tensor.strides[: tensor.rank])
        self.is_output = bool(tensor.role & OUTPUT)

    @property
    def elements(self):
        """From the first to the last in memory."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides))

    @property
    def nbytes(self):
        return self.elements * ITEM_BYTES[self.dtype]


def value_of(attribute):
    """An axis as Python has it: a number, a flag, a word, or the two ends of an interval."""
    text = attribute.text.decode()
    if text in ("true", "false"):
        return text == "true"
    if ".." in text:
        return attribute.low, attribute.high
    return attribute.integer if text.lstrip("-").isdigit() else text


class Case:
    """A case: `op`, `dtype`, each axis of the operation as an attribute, and `shapes` of the tensors by name."""

    def __init__(self, problem):
        self.op = problem.op.decode()
        self.dtype = DTYPES[problem.dtype]
        self.shapes = {}
        for tensor in problem.tensors[: problem.tensor_count]:
            self.shapes[tensor.name.decode()] = tuple(tensor.shape[: tensor.rank])
        self.axes = {a.name.decode(): value_of(a) for a in problem.attributes[: problem.attribute_count]}

    def __getattr__(self, name):
        try:
            return self.__dict__["axes"][name]
        except KeyError:
            raise AttributeError(f"{self.__dict__.get('op')} has no axis {name!r}") from None
