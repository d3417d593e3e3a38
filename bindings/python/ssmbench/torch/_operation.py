"""Calls of the library: plans by shapes, launches on the current stream, and operators of torch.library."""

import collections
import threading

import torch
from torch import Tensor
from torch._C._dynamo.guards import TensorGuards

from .._library import INPUT
from .._operations import Shaped

NAMES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.complex64: "c64",
    torch.int32: "i32",
}
ALIGNMENT = 16  # of CUDA tensors, in bytes: some kernels load vectors only
MOST_PLANS = 1024
MOST_ALIKE = 16  # calls that only Known tells apart


PLAIN = frozenset((Tensor, torch.nn.Parameter, type(None)))
dispatch_modes = torch._C._len_torch_dispatch_stack
transforms = torch._C._functorch.peek_interpreter_stack
trace = torch._C._get_tracing_state
is_compiling = torch.compiler.is_compiling
data_ptr = Tensor.data_ptr


def is_observed():
    """Whether something records, traces or transforms what is called."""
    return is_compiling() or dispatch_modes() or trace() is not None or transforms() is not None


def is_plain(tensors):
    """Whether an operator may be left out: nobody sees what is called with these, but for gradients."""
    return not is_observed() and PLAIN.issuperset(map(type, tensors))


def needs_gradients(tensors):
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def is_direct(tensors):
    """Whether nobody sees at all what is called with these."""
    return is_plain(tensors) and not needs_gradients(tensors)


def key_of(given, options):
    """What calls have to have in common, but for what Known looks at; different calls seldom have it."""
    return options, given[0].shape, given[0].dtype, torch.is_grad_enabled(), *map(type, given)


def misaligned(addresses):
    bits = 0
    for address in addresses:
        bits |= address
    return bits % ALIGNMENT != 0


class Placed:
    """A plan on a device."""

    def __init__(self, plan, device):
        self.plan = plan
        self.device = device
        self.cuda = device.index if device.type == "cuda" else None

    def launch(self, addresses):
        """On the current stream."""
        plan, index, scratch = self.plan, self.cuda, None
        if plan.workspace_bytes:
            workspace = torch.empty_strided((plan.workspace_bytes,), (1,), dtype=torch.uint8, device=self.device)
            scratch = workspace.data_ptr()
        if index is None:
            plan.launch(addresses, scratch, None)
        elif index == torch._C._cuda_getDevice():
            # As Triton has it: torch.cuda.current_stream() makes an object, which takes 4 us.
            plan.launch(addresses, scratch, torch._C._cuda_getCurrentRawStream(index))
        else:
            with torch.cuda.device(index):
                plan.launch(addresses, scratch, torch._C._cuda_getCurrentRawStream(index))


class Known:
    """A call whose tensors went to the library as they were, so that the next like it can go there at once."""

    def __init__(self, tensors, placed, results):
        shapes, strides = [list(tensor.shape) for tensor in tensors], [list(tensor.stride()) for tensor in tensors]
        # What torch.compile looks at before it calls what it compiled: type, device, dtype, shape, strides, whether
        # there are gradients. In C++: Python takes 0.5 us a tensor for it.
        guards = TensorGuards(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides)
        self.is_like = guards.check
        self.placed = placed
        self.forms = [(result.shape, result.stride(), result.dtype) for result in results]


class Operation:
    """An operation of the library on tensors: plans by shapes, and launches."""

    def __init__(self, spec):
        self.spec = spec
        self.placed = {}  # plans, by shapes and so on
        self.known = {}  # by options, types and so on of a call: those Known
        self.latest = threading.local()

    def __call__(self, tensors, options=(), second_layout=False):
        """Launches on the current stream. tensors: None where there is none, each dense in its order."""
        key = (
            options,
            second_layout,
            *[None if tensor is None else (tensor.shape, tensor.dtype, tensor.get_device()) for tensor in tensors],
        )
        placed = self.placed.get(key)
        if placed is None:
            placed = self.place(key, tensors, options, second_layout)
        if placed.cuda is not None:
            tensors = [self.aligned(*each) for each in zip(tensors, self.spec.tensors)]
        addresses = [tensor.data_ptr() for tensor in tensors if tensor is not None]
        placed.launch(addresses)
        self.latest.launch = placed, addresses

    def repeated(self, given, options, twice=None):
        """The results of a call like one that `remember` was told of; None if there was none.

        given: the tensors of a call in the library's order, each once. twice: one that the library has again, after
        them.
        """
        if is_observed():
            return None
        tensors = [tensor for tensor in given if tensor is not None]
        for known in self.known.get(key_of(given, options), ()):
            if known.is_like(*tensors):
                break
        else:
            return None
        addresses = list(map(data_ptr, tensors))
        if twice is not None:
            addresses.append(data_ptr(twice))
        placed = known.placed
        if placed.cuda is not None and misaligned(addresses):
            return None
        results = []
        for shape, strides, dtype in known.forms:
            result = torch.empty_strided(shape, strides, dtype=dtype, device=placed.device)
            results.append(result)
            addresses.append(data_ptr(result))
        placed.launch(addresses)
        return results

    def remember(self, given, options, results, twice=None):
        """After a call. The next like it goes to the library at once if this one's tensors went there as they were."""
        if not is_direct(given):
            return
        placed, addresses = self.latest.launch
        if addresses != [tensor.data_ptr() for tensor in (*given, twice, *results) if tensor is not None]:
            return  # some were converted or copied
        if len(self.known) >= MOST_PLANS:
            self.known.clear()
        tensors = [tensor for tensor in given if tensor is not None]
        known = Known(tensors, placed, results)
        if known.is_like(*tensors):  # it never is if one tensor is in two places
            alike = self.known.setdefault(key_of(given, options), collections.deque(maxlen=MOST_ALIKE))
            alike.append(known)

    @staticmethod
    def aligned(tensor, described):
        """The tensor, or a copy of an input at an address that vectors may have."""
        if tensor is None or described[1] != INPUT or tensor.data_ptr() % ALIGNMENT == 0:
            return tensor
        return torch.empty_like(tensor).copy_(tensor)

    def place(self, key, tensors, options, second_layout):
        shaped = []
        for (name, _, _), tensor in zip(self.spec.tensors, tensors):
            if tensor is None:
                shaped.append(None)
                continue
            if tensor.device != tensors[0].device:
                raise ValueError(f"{name} is on {tensor.device}, {self.spec.tensors[0][0]} on {tensors[0].device}")
            if tensor.dtype not in NAMES:
                raise TypeError(f"{name} is {tensor.dtype}")
            shaped.append(Shaped(tuple(tensor.shape), NAMES[tensor.dtype]))
        if len(self.placed) >= MOST_PLANS:
            self.placed.clear()
        device = tensors[0].device
        placed = self.placed[key] = Placed(self.spec.plan(device.type, shaped, options, second_layout), device)
        return placed


def operator(name, mutates=()):
    """Makes a function an operator of torch.library; its attribute `direct` is the function itself."""

    def register(function):
        made = torch.library.custom_op(f"ssmbench::{name}", function, mutates_args=mutates)
        made.direct, made.recorded = function, made
        return made

    return register


def differentiable(made, save, differentiate):
    """Gives an operator gradients; `recorded` is it where nothing but those is asked for, without the dispatcher."""
    made.register_autograd(differentiate, setup_context=save)

    def forward(ctx, *inputs):
        results = made.direct(*inputs)
        save(ctx, inputs, results)
        return results

    methods = dict(forward=staticmethod(forward), backward=staticmethod(differentiate))
    made.recorded = type(made.direct.__name__, (torch.autograd.Function,), methods).apply


def call(made, tensors, *options):
    """Calls an operator, or what does the same in less time where nobody sees the difference."""
    if not is_plain(tensors):
        return made(*tensors, *options)
    return (made.recorded if needs_gradients(tensors) else made.direct)(*tensors, *options)
