"""Several programs a row: one kernel sums each part of a row, a second merges them and writes."""

import torch
import triton
import triton.language as tl

PART = 8192  # elements


@triton.jit
def sum_parts(x, tops, totals, cols, parts, PART: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = part * PART + tl.arange(0, PART)
    value = tl.load(x + row * cols + at, mask=at < cols, other=float("-inf")).to(tl.float32)
    # The lowest float, not minus infinity: the difference of two of those is no number.
    top = tl.maximum(tl.max(value, 0), -3.4028234663852886e38)
    tl.store(tops + row * parts + part, top)
    tl.store(totals + row * parts + part, tl.sum(tl.exp(value - top), 0))


@triton.jit
def write_parts(x, tops, totals, out, cols, parts, PART: tl.constexpr, PARTS: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = part * PART + tl.arange(0, PART)
    value = tl.load(x + row * cols + at, mask=at < cols, other=float("-inf")).to(tl.float32)
    each = tl.arange(0, PARTS)
    highest = tl.load(tops + row * parts + each, mask=each < parts, other=float("-inf"))
    summed = tl.load(totals + row * parts + each, mask=each < parts, other=0)
    top = tl.max(highest, 0)
    scale = tl.div_rn(1.0, tl.sum(summed * tl.exp(highest - top), 0))
    tl.store(out + row * cols + at, tl.exp(value - top) * scale, mask=at < cols)


def run(x: torch.Tensor) -> torch.Tensor:
    rows, cols = x.shape
    parts = triton.cdiv(cols, PART)
    tops, totals = torch.empty((2, rows, parts), dtype=torch.float32, device=x.device)
    out = torch.empty_like(x)
    sum_parts[(rows, parts)](x, tops, totals, cols, parts, PART=PART, num_warps=8)
    write_parts[(rows, parts)](
        x, tops, totals, out, cols, parts, PART=PART,
        PARTS=triton.next_power_of_2(parts), num_warps=8,
    )  # fmt: skip
    return out
