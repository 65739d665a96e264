"""One program per row, in three passes: maximum, sum, and quotients."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x += row * cols
    out += row * cols
    offsets = tl.arange(0, BLOCK)

    maxima = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + offsets
        value = tl.load(x + col, mask=col < cols, other=float("-inf")).to(tl.float32)
        maxima = tl.maximum(maxima, value)
    row_max = tl.max(maxima, 0)

    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + offsets
        value = tl.load(x + col, mask=col < cols, other=float("-inf")).to(tl.float32)
        sums += tl.exp(value - row_max)
    scale = tl.div_rn(1.0, tl.sum(sums, 0))

    for start in range(0, cols, BLOCK):
        col = start + offsets
        value = tl.load(x + col, mask=col < cols, other=float("-inf")).to(tl.float32)
        tl.store(out + col, tl.exp(value - row_max) * scale, mask=col < cols)


def run(x: torch.Tensor) -> torch.Tensor:
    rows, cols = x.shape
    out = torch.empty_like(x)
    softmax[(rows,)](x, out, cols, BLOCK=1024, num_warps=4)
    return out
