"""Arrays of NumPy, PyTorch and CuPy that alias ssmbench's memory, and streams to launch on."""

import contextlib
import ctypes
import functools

from ._interface import ITEM_BYTES

FORMATS = {"f32": "f4", "f64": "f8", "f16": "f2", "c64": "c8", "i32": "i4", "i64": "i8", "i16": "i2", "i8": "i1"}


def strides_in_bytes(span):
    return tuple(stride * ITEM_BYTES[span.dtype] for stride in span.strides)


class NumPy:
    def __init__(self):
        import numpy

        self.numpy = numpy

    @staticmethod
    def lacks(dtype):
        return None if dtype in FORMATS else f"NumPy has no {dtype}"

    def array(self, span):
        memory = (ctypes.c_char * span.nbytes).from_address(span.data)
        array = self.numpy.ndarray(span.shape, FORMATS[span.dtype], memory, strides=strides_in_bytes(span))
        array.flags.writeable = span.is_output
        return array

    def on(self, stream):
        return contextlib.nullcontext()

    def copy(self, to, values):
        to[...] = values

    def synchronize(self):
        pass

    def forget(self):
        pass


class CuPy:
    def __init__(self):
        import cupy

        self.cupy = cupy
        self.stream = functools.cache(cupy.cuda.ExternalStream)

    @staticmethod
    def lacks(dtype):
        return None if dtype in FORMATS else f"CuPy has no {dtype}"

    def array(self, span):
        cuda = self.cupy.cuda
        memory = cuda.MemoryPointer(cuda.UnownedMemory(span.data, span.nbytes, None), 0)
        return self.cupy.ndarray(span.shape, FORMATS[span.dtype], memory, strides=strides_in_bytes(span))

    def on(self, stream):
        if stream is None:
            return self.cupy.cuda.Device(current_cuda_device())
        return self.stream(stream)

    def copy(self, to, values):
        to[...] = values

    def synchronize(self):
        self.cupy.cuda.Device().synchronize()

    def forget(self):
        self.cupy.get_default_memory_pool().free_all_blocks()


class DLDevice(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("index", ctypes.c_int32)]


class DLManagedTensor(ctypes.Structure):
    """Of DLPack before 1.0, which every PyTorch reads (https://github.com/dmlc/dlpack)."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("rank", ctypes.c_int32),
        ("dtype_code", ctypes.c_uint8),
        ("dtype_bits", ctypes.c_uint8),
        ("dtype_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


DL_CPU, DL_CUDA, DL_UNSIGNED = 1, 2, 1


class Torch:
    TYPES = {
        "f32": "float32",
        "f64": "float64",
        "f16": "float16",
        "bf16": "bfloat16",
        "c64": "complex64",
        "i32": "int32",
        "i64": "int64",
        "i16": "int16",
        "i8": "int8",
        "e4m3": "float8_e4m3fn",
    }
    described = []  # what tensors were made of has to stay as long as they, and they may be kept anywhere

    def __init__(self, device):
        import torch

        self.torch = torch
        self.device = device
        self.stream = functools.cache(self.external_stream)

    @staticmethod
    def lacks(dtype):
        return None

    def array(self, span):
        dtype = getattr(self.torch, self.TYPES[span.dtype])
        if span.nbytes == 0:
            return self.torch.empty(span.shape, dtype=dtype, device=self.device)
        return self.bytes(span).view(dtype).as_strided(span.shape, span.strides)

    def bytes(self, span):
        where = DLDevice(DL_CUDA, current_cuda_device()) if self.device == "cuda" else DLDevice(DL_CPU, 0)
        shape, strides = (ctypes.c_int64 * 1)(span.nbytes), (ctypes.c_int64 * 1)(1)
        managed = DLManagedTensor(span.data, where, 1, DL_UNSIGNED, 8, 1, shape, strides, 0, None, None)
        self.described.append((managed, shape, strides))
        new_capsule = ctypes.pythonapi.PyCapsule_New
        new_capsule.restype = ctypes.py_object
        new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return self.torch.utils.dlpack.from_dlpack(new_capsule(ctypes.addressof(managed), b"dltensor", None))

    def external_stream(self, pointer):
        return self.torch.cuda.ExternalStream(pointer, device=current_cuda_device())

    def on(self, stream):
        if self.device == "cpu":
            return contextlib.nullcontext()
        if stream is None:
            return self.torch.cuda.device(current_cuda_device())
        return self.torch.cuda.stream(self.stream(stream))

    def copy(self, to, values):
        to.copy_(values.detach())

    def synchronize(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def forget(self):
        """Gives memory back that PyTorch keeps for later."""
        if self.device == "cuda":
            self.torch.cuda.empty_cache()


def current_cuda_device():
    device = ctypes.c_int(-1)
    status = ctypes.CDLL("libcuda.so.1").cuCtxGetDevice(ctypes.byref(device))
    if status != 0:
        raise RuntimeError(f"cuCtxGetDevice: error {status}")
    return device.value


@functools.cache
def framework(name, device):
    return Torch(device) if name == "torch" else NumPy() if name == "numpy" else CuPy()
