"""Layouts and dtypes of tensors, and memory for results."""

import torch

from .._operations import dense_strides

IO_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def dense(tensor):
    """The tensor, or a dense copy. PyTorch copies slices by elements; by 16 bytes it takes half of the time."""
    if tensor.is_contiguous():
        return tensor
    elements = 16 // tensor.element_size()
    pieces = (tensor.shape[-1], tensor.storage_offset(), *tensor.stride()[:-1])
    if tensor.stride(-1) != 1 or tensor.data_ptr() % 16 or any(count % elements for count in pieces):
        return tensor.contiguous()
    return tensor.view(torch.complex128).contiguous().view(tensor.dtype)


def stored(tensor, order):
    """The tensor, or a copy that is dense in that order."""
    if tensor is None or order is None:
        return tensor if tensor is None else dense(tensor)
    inverse = [order.index(axis) for axis in range(len(order))]
    return dense(tensor.permute(order)).permute(inverse)


def in_order(*tensors):
    """The tensors, copied where they are not dense."""
    return [tensor if tensor is None else dense(tensor) for tensor in tensors]


def empty_like(tensor, order=None, dtype=None):
    """Memory of that shape, dense in that order."""
    if order is None:
        return torch.empty_like(tensor, dtype=dtype, memory_format=torch.contiguous_format)
    return torch.empty_strided(
        tensor.shape, dense_strides(tensor.shape, order), dtype=dtype or tensor.dtype, device=tensor.device
    )


def has_channels_last(tensor):
    """Whether channels are neighbours in memory rather than steps; a slice of them need not be dense."""
    return not tensor.is_contiguous() and tensor.stride(1) == 1 and tensor.shape[1] > 1


def io_dtype(*tensors):
    """What sequences are computed from: their common dtype, or f32 if they have several."""
    dtype = tensors[0].dtype
    for tensor in tensors:
        if tensor is not None and tensor.dtype != dtype:
            return torch.float32
    return dtype if dtype in IO_DTYPES else torch.float32


def converted(tensor, dtype):
    return tensor if tensor is None or tensor.dtype == dtype else tensor.to(dtype)


def in_dtypes(tensors, dtypes):
    """The tensors, each converted where it has another dtype."""
    return tuple(
        [t if t is None or t.dtype == dtype else t.to(dtype) for t, dtype in zip(tensors, dtypes, strict=True)]
    )


def spread(gradients, inputs):
    """Gradients, with None for the inputs that are not there."""
    gradients = iter(gradients)
    return [None if tensor is None else next(gradients) for tensor in inputs]
