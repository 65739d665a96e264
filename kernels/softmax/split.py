"""Several programs per row: one kernel computes the maximum and sum of each part of a row. A second
kernel merges them, reads the row again and writes the quotients.
"""

import torch
import triton
import triton.language as tl

PART = 8192  # elements


@triton.jit
def sum_parts(x, part_maxima, part_sums, cols, parts, PART: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    col = part * PART + tl.arange(0, PART)
    value = tl.load(x + row * cols + col, mask=col < cols, other=float("-inf")).to(tl.float32)
    # The lowest finite float, not minus infinity: -inf - -inf would be NaN.
    part_max = tl.maximum(tl.max(value, 0), -3.4028234663852886e38)
    tl.store(part_maxima + row * parts + part, part_max)
    tl.store(part_sums + row * parts + part, tl.sum(tl.exp(value - part_max), 0))


@triton.jit
def write_parts(
    x, part_maxima, part_sums, out, cols, parts, PART: tl.constexpr, PARTS: tl.constexpr
):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    col = part * PART + tl.arange(0, PART)
    value = tl.load(x + row * cols + col, mask=col < cols, other=float("-inf")).to(tl.float32)
    offsets = tl.arange(0, PARTS)
    in_row = offsets < parts
    maxima = tl.load(part_maxima + row * parts + offsets, mask=in_row, other=float("-inf"))
    sums = tl.load(part_sums + row * parts + offsets, mask=in_row, other=0)
    row_max = tl.max(maxima, 0)
    scale = tl.div_rn(1.0, tl.sum(sums * tl.exp(maxima - row_max), 0))
    tl.store(out + row * cols + col, tl.exp(value - row_max) * scale, mask=col < cols)


def run(x: torch.Tensor) -> torch.Tensor:
    rows, cols = x.shape
    parts = triton.cdiv(cols, PART)
    part_maxima, part_sums = torch.empty((2, rows, parts), dtype=torch.float32, device=x.device)
    out = torch.empty_like(x)
    sum_parts[(rows, parts)](x, part_maxima, part_sums, cols, parts, PART=PART, num_warps=8)
    write_parts[(rows, parts)](
        x, part_maxima, part_sums, out, cols, parts, PART=PART,
        PARTS=triton.next_power_of_2(parts), num_warps=8,
    )  # fmt: skip
    return out
