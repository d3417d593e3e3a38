"""Calls of the library: plans by shapes, launches on the current stream, and operators of torch.library."""

import threading

import torch
from torch import Tensor

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


def described(tensors, options):
    """All that what becomes of a call depends on, but for values and addresses."""
    return (options, *[None if t is None else (t.shape, t.stride(), t.dtype, t.get_device()) for t in tensors])


class Operation:
    """An operation of the library on tensors: plans by shapes, and launches."""

    def __init__(self, spec):
        self.spec = spec
        self.plans = {}
        self.known = {}  # by description of a call: its plan, and the form of its results
        self.latest = threading.local()

    def __call__(self, tensors, options=(), second_layout=False):
        """Launches on the current stream. tensors: None where there is none, each dense in its order."""
        device = tensors[0].device
        key = (
            options,
            second_layout,
            *[None if tensor is None else (tensor.shape, tensor.dtype, tensor.get_device()) for tensor in tensors],
        )
        plan = self.plans.get(key)
        if plan is None:
            plan = self.make_plan(key, tensors, options, second_layout)
        if device.type == "cuda":
            tensors = [self.aligned(*each) for each in zip(tensors, self.spec.tensors)]
        addresses = [tensor.data_ptr() for tensor in tensors if tensor is not None]
        self.launch(plan, addresses, device)
        self.latest.launch = plan, addresses

    def launch(self, plan, addresses, device):
        scratch = None
        if plan.workspace_bytes:
            workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device=device)
            scratch = workspace.data_ptr()
        if device.type == "cpu":
            plan.launch(addresses, scratch, None)
        else:
            with torch.cuda.device(device):
                # As Triton has it: torch.cuda.current_stream() makes an object, which takes 4 us.
                plan.launch(addresses, scratch, torch._C._cuda_getCurrentRawStream(device.index))

    def repeated(self, given, options):
        """The results of a call like one that `remember` was told of; None if there was none."""
        if not is_direct(given):
            return None
        known = self.known.get(described(given, options))
        if known is None:
            return None
        plan, forms = known
        device = given[0].device
        addresses = [tensor.data_ptr() for tensor in given if tensor is not None]
        if device.type == "cuda" and any(address % ALIGNMENT for address in addresses):
            return None
        results = [torch.empty_strided(*form, dtype=dtype, device=device) for *form, dtype in forms]
        self.launch(plan, addresses + [result.data_ptr() for result in results], device)
        return results

    def remember(self, given, options, results):
        """After a call. The next like it goes to the library at once if this one's tensors went there as they were."""
        if not is_direct(given):
            return
        plan, addresses = self.latest.launch
        if addresses != [tensor.data_ptr() for tensor in (*given, *results) if tensor is not None]:
            return  # some were converted or copied
        if len(self.known) >= MOST_PLANS:
            self.known.clear()
        forms = [(result.shape, result.stride(), result.dtype) for result in results]
        self.known[described(given, options)] = plan, forms

    @staticmethod
    def aligned(tensor, described):
        """The tensor, or a copy of an input at an address that vectors may have."""
        if tensor is None or described[1] != INPUT or tensor.data_ptr() % ALIGNMENT == 0:
            return tensor
        return torch.empty_like(tensor).copy_(tensor)

    def make_plan(self, key, tensors, options, second_layout):
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
        if len(self.plans) >= MOST_PLANS:
            self.plans.clear()
        plan = self.plans[key] = self.spec.plan(tensors[0].device.type, shaped, options, second_layout)
        return plan


PLAIN = frozenset((Tensor, torch.nn.Parameter, type(None)))
dispatch_modes = torch._C._len_torch_dispatch_stack
transforms = torch._C._functorch.peek_interpreter_stack
trace = torch._C._get_tracing_state


def is_direct(tensors):
    """Whether an operator may be left out: nothing records, traces or transforms what is called with these."""
    if torch.compiler.is_compiling() or dispatch_modes() or trace() is not None or transforms() is not None:
        return False
    if not PLAIN.issuperset(map(type, tensors)):
        return False
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return False
    return True


def operator(name, mutates=()):
    """Makes a function an operator of torch.library; its attribute `direct` is the function itself."""

    def register(function):
        made = torch.library.custom_op(f"ssmbench::{name}", function, mutates_args=mutates)
        made.direct = function
        return made

    return register


def call(made, tensors, *options):
    """Calls an operator, or its function itself where nobody sees the difference."""
    return (made.direct if is_direct(tensors) else made)(*tensors, *options)
