# mypy: ignore-errors
"""Triton with an autotuner, whose launches are no part of a call."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    [triton.Config({"BLOCK": block}, num_warps=4) for block in (512, 2048)],
    key=["n"],
)
@triton.jit
def silu(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(out + at, v * tl.sigmoid(v), mask=at < n)


def run(x):
    out = torch.empty_like(x)
    silu[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out
