"""To fill in: still a copy of baseline."""

import torch
import triton
import triton.language as tl


@triton.jit
def rmsnorm(x, weight, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row + at, mask=at < columns, other=0.0).to(tl.float32)
        total += value * value
    scale = tl.rsqrt(tl.sum(total, axis=0) / columns + eps)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row + at, mask=at < columns, other=0.0).to(tl.float32)
        gain = tl.load(weight + at, mask=at < columns, other=0.0).to(tl.float32)
        tl.store(out + row + at, (value * scale * gain).to(tl.float16), mask=at < columns)


def run(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    rows, columns = x.shape
    out = torch.empty_like(x)
    # To change: a row of 4096 fits into the registers of a program. Let BLOCK be the next power of
    # two above it, and read it once instead of twice.
    rmsnorm[(rows,)](x, weight, out, columns, eps, BLOCK=128, num_warps=4)
    return out
