"""Trains a block of the installed mamba_ssm twice from the same weights: with its own kernels, then with ssmbench's.

    python3 train_mamba_block.py [--block Mamba2] [--steps 20] [--batch 8] [--seqlen 2048] [--d-model 2048]

Prints the losses of both, their largest relative difference, and the median time of a step. Exits with 1 if losses
differ by more than --tolerance. Sequences are in bf16 (autocast), weights in f32.
"""

import argparse
import statistics
import sys

import torch
from mamba_ssm.modules import mamba2, mamba_simple
from ssmbench.torch import (
    causal_conv1d,
    causal_conv1d_update,
    mamba_chunk_scan,
    selective_scan,
    selective_state_update,
)

BLOCKS = {"Mamba": mamba_simple.Mamba, "Mamba2": mamba2.Mamba2}
# One function of mamba_ssm computes the block from the first projection to the last, where this is True.
FUSED = {"Mamba": "use_fast_path", "Mamba2": "use_mem_eff_path"}
ROUNDING = 2.0**-8  # of bf16


def use_ssmbench():
    """Has blocks of mamba_ssm call ssmbench. They do where they are made with use_fast_path or use_mem_eff_path False."""
    mamba_simple.selective_scan_fn = selective_scan
    mamba2.mamba_chunk_scan_combined = mamba_chunk_scan
    for module in (mamba_simple, mamba2):
        module.causal_conv1d_fn = causal_conv1d
        module.causal_conv1d_update = causal_conv1d_update
        module.selective_state_update = selective_state_update


def task(step, shape):
    """Sequences, and what to make of them: each step plus the one six before."""
    generator = torch.Generator("cuda").manual_seed(step)
    x = torch.randn(*shape, generator=generator, device="cuda")
    return x, x + x.roll(6, 1)


def train(options, fused):
    """Losses, and the median time of a step in ms."""
    torch.manual_seed(0)
    choice = {FUSED[options.block]: fused}
    block = BLOCKS[options.block](d_model=options.d_model, device="cuda", **choice)
    optimizer = torch.optim.AdamW(block.parameters(), lr=1e-3, fused=True)
    losses, times = [], []
    for step in range(options.steps):
        x, target = task(step, (options.batch, options.seqlen, options.d_model))
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.mse_loss(block(x).float(), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        end.record()
        losses.append(loss.item())  # waits
        times.append(start.elapsed_time(end))
    return losses, statistics.median(times[len(times) // 4 :])  # the first compile and tune


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--block", choices=BLOCKS, default="Mamba2")
    for name, default in (("steps", 20), ("batch", 8), ("seqlen", 2048), ("d-model", 2048)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tolerance", type=float, default=ROUNDING, help="relative (default: a rounding of bf16)")
    options = parser.parse_args()

    runs = {"mamba_ssm": train(options, fused=False)}
    if mamba2.causal_conv1d_fn is not None:  # which its fused functions need
        runs["mamba_ssm, fused"] = train(options, fused=True)
    use_ssmbench()
    runs["ssmbench"] = train(options, fused=False)

    expected, _ = runs["mamba_ssm"]
    for name, (losses, milliseconds) in runs.items():
        difference = max(abs(a - b) / b for a, b in zip(losses, expected))
        print(
            f"{options.block:7} {name:16} {milliseconds:8.3f} ms a step, loss {losses[0]:.5f} to {losses[-1]:.5f}, "
            f"within {difference:.1e} of mamba_ssm's"
        )
    sys.exit(difference > options.tolerance)


main()
