"""Memory of ssmbench's for outputs that a function of PyTorch allocates."""

import torch


class GivenOutputs(torch.overrides.TorchFunctionMode):
    """While active, torch.empty and torch.empty_like return a wanted tensor where they would make one of its shape and
    dtype: each once, in order. What the function writes is then where it is wanted, and no copy is in its time.
    """

    def __init__(self, wanted):
        super().__init__()
        self.wanted = wanted

    def __enter__(self):
        self.left = list(self.wanted)
        return super().__enter__()

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        made = (None, None)
        if function is torch.empty_like:
            made = (arguments[0].shape, options.get("dtype") or arguments[0].dtype)
        elif function is torch.empty and arguments and isinstance(arguments[0], (tuple, list)):
            made = (tuple(arguments[0]), options.get("dtype") or torch.get_default_dtype())
        for index, tensor in enumerate(self.left):
            if (tensor.shape, tensor.dtype) == made:
                return self.left.pop(index)
        return function(*arguments, **options)
