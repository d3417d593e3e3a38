"""ssmbench's kernels in PyTorch: mamba_ssm's and causal-conv1d's functions, with their arguments and meaning.

    from ssmbench.torch import selective_scan, mamba_chunk_scan, selective_state_update
    from ssmbench.torch import causal_conv1d, causal_conv1d_update

They take CUDA and CPU tensors, run on the current stream with memory of PyTorch's allocator, and wait for nothing, so
that CUDA graphs capture them. Each is an operator of torch.library (torch.ops.ssmbench), which torch.compile takes as
one node. All but the updates have gradients, once.
"""

from ._chunk_scan import mamba_chunk_scan
from ._convolution import causal_conv1d, causal_conv1d_update
from ._scan import selective_scan
from ._state_update import selective_state_update

__all__ = ["selective_scan", "mamba_chunk_scan", "selective_state_update", "causal_conv1d", "causal_conv1d_update"]
