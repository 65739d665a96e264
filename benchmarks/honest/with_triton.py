"""Kernels in Triton."""

from typing import Any

import torch
import triton
import triton.language as tl

Tensor = torch.Tensor


@triton.jit
def silu_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(out + at, value * tl.sigmoid(value), mask=at < n)


@triton.jit
def softmax_kernel(x, out, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * cols + tl.arange(0, BLOCK)
    here = tl.arange(0, BLOCK) < cols
    value = tl.load(x + at, mask=here, other=float("-inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + at, value / tl.sum(value, 0), mask=here)


@triton.jit
def rms_kernel(x, out, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * cols + tl.arange(0, BLOCK)
    here = tl.arange(0, BLOCK) < cols
    value = tl.load(x + at, mask=here, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / cols + 1e-6)
    tl.store(out + at, value * scale, mask=here)


@triton.jit
def accumulate_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n)
    tl.store(x + at, value, mask=at < n)


@triton.jit
def gelu_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(out + at, 0.5 * value * (1 + tl.erf(value * 0.7071067811865476)), mask=at < n)


@triton.jit
def swiglu_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    by = tl.load(y + at, mask=at < n).to(tl.float32)
    tl.store(out + at, value * tl.sigmoid(value) * by, mask=at < n)


@triton.jit
def layernorm_kernel(x, out, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * cols + tl.arange(0, BLOCK)
    here = tl.arange(0, BLOCK) < cols
    value = tl.load(x + at, mask=here, other=0.0).to(tl.float32)
    apart = tl.where(here, value - tl.sum(value, 0) / cols, 0.0)
    tl.store(out + at, apart * tl.rsqrt(tl.sum(apart * apart, 0) / cols + 1e-5), mask=here)


@triton.jit
def sum_kernel(x, out, cols, BLOCK: tl.constexpr):
    lanes = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0).to(tl.int64) * cols + lanes, mask=lanes < cols, other=0.0)
    tl.atomic_add(out + tl.program_id(0), tl.sum(value, 0))


@triton.jit
def transpose_kernel(x, out, rows, cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (i < rows)[:, None] & (j < cols)[None, :]
    tile = tl.load(x + i[:, None] * cols + j[None, :], mask=inside)
    tl.store(out + j[:, None] * rows + i[None, :], tl.trans(tile), mask=tl.trans(inside))


@triton.jit
def dequantised_kernel(q, s, out, cols, BLOCK: tl.constexpr):
    row, lanes = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    value = tl.load(q + row * cols + lanes, mask=lanes < cols).to(tl.float32)
    tl.store(out + row * cols + lanes, value * tl.load(s + row), mask=lanes < cols)


@triton.jit
def split_kernel(a, b, out, n, share, M: tl.constexpr, K: tl.constexpr):
    rows, cols = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * M + tl.arange(0, M)
    lanes, total = tl.arange(0, K), tl.zeros([M, M], tl.float32)
    first = tl.program_id(2) * share
    for k in range(first, first + share, K):
        left = tl.load(a + rows[:, None] * n + k + lanes[None, :])
        right = tl.load(b + (k + lanes)[:, None] * n + cols[None, :])
        total = tl.dot(left, right, total)
    tl.atomic_add(out + rows[:, None] * n + cols[None, :], total)


def matmul_kernel(a, b, out, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    cols = tl.program_id(1) * N + tl.arange(0, N)
    lanes = tl.arange(0, K)
    total = tl.zeros([M, N], tl.float32)
    for k in range(0, n, K):
        left = tl.load(a + rows[:, None] * n + k + lanes[None, :])
        right = tl.load(b + (k + lanes)[:, None] * n + cols[None, :])
        total = tl.dot(left, right, total)
    tl.store(out + rows[:, None] * n + cols[None, :], total)


matmul_fixed: Any = triton.jit(matmul_kernel)
matmul_tuned: Any = triton.autotune(
    [
        triton.Config({"M": 64, "N": 64, "K": 32}, num_warps=4),
        triton.Config({"M": 128, "N": 64, "K": 32}, num_warps=4),
        triton.Config({"M": 128, "N": 128, "K": 32}, num_warps=8),
    ],
    key=["n"],
)(triton.jit(matmul_kernel))


def silu_triton(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    silu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


def softmax_triton(x: Tensor) -> Tensor:
    out, cols = torch.empty_like(x), x.shape[1]
    softmax_kernel[(x.shape[0],)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
    return out


def rms_triton(x: Tensor) -> Tensor:
    out, cols = torch.empty_like(x), x.shape[1]
    rms_kernel[(x.shape[0],)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
    return out


def accumulate_triton(x: Tensor, y: Tensor) -> Tensor:
    accumulate_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return x


def matmul_triton(a: Tensor, b: Tensor) -> Tensor:
    n, out = a.shape[0], torch.empty_like(a)
    matmul_fixed[(n // 64, n // 64)](a, b, out, n, M=64, N=64, K=32)
    return out


def matmul_autotuned(a: Tensor, b: Tensor) -> Tensor:
    n, out = a.shape[0], torch.empty_like(a)
    matmul_tuned[lambda found: (n // found["M"], n // found["N"])](a, b, out, n)
    return out


def pointwise(kernel: Any, x: Tensor, *others: Tensor) -> Tensor:
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, *others, out, x.numel(), BLOCK=1024)
    return out


def gelu_triton(x: Tensor) -> Tensor:
    return pointwise(gelu_kernel, x)


def swiglu_triton(x: Tensor, y: Tensor) -> Tensor:
    return pointwise(swiglu_kernel, x, y)


def layernorm_triton(x: Tensor) -> Tensor:
    out, cols = torch.empty_like(x), x.shape[1]
    layernorm_kernel[(x.shape[0],)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
    return out


def sum_triton(x: Tensor) -> Tensor:
    rows, cols = x.shape
    out = x.new_zeros(rows)
    sum_kernel[(rows, triton.cdiv(cols, 256))](x, out, cols, BLOCK=256)
    return out


def transpose_triton(x: Tensor) -> Tensor:
    rows, cols = x.shape
    out = x.new_empty(cols, rows)
    grid = triton.cdiv(rows, 32), triton.cdiv(cols, 32)
    transpose_kernel[grid](x, out, rows, cols, BLOCK=32)
    return out


def dequantised_triton(q: Tensor, s: Tensor) -> Tensor:
    out = torch.empty(q.shape, dtype=s.dtype, device=q.device)
    dequantised_kernel[(len(q),)](q, s, out, q.shape[1], BLOCK=triton.next_power_of_2(q.shape[1]))
    return out


def matmul_atomics(a: Tensor, b: Tensor) -> Tensor:
    """Its sums are of another order in every call."""
    n = a.shape[0]
    out = torch.zeros(n, n, device=a.device)
    split_kernel[(n // 64, n // 64, 4)](a, b, out, n, n // 4, M=64, K=32)
    return out.to(a.dtype)
