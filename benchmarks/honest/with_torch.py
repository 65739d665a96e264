"""PyTorch: single calls of its libraries, several in a row, and its compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

Tensor = torch.Tensor


def attention(q: Tensor, k: Tensor, v: Tensor, backend: SDPBackend) -> Tensor:
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v)


def silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def linear(x: Tensor, w: Tensor) -> Tensor:
    return F.relu(x @ w)


def softmax(x: Tensor) -> Tensor:
    x = torch.exp(x - x.amax(1, keepdim=True))
    return x / x.sum(1, keepdim=True)


def rms(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6)


def halves(a: Tensor, b: Tensor) -> Tensor:
    """Two products on two streams."""
    half, own, side = a.shape[0] // 2, torch.cuda.current_stream(), torch.cuda.Stream()
    out = torch.empty_like(a)
    side.wait_stream(own)
    torch.mm(a[:half], b, out=out[:half])
    with torch.cuda.stream(side):
        torch.mm(a[half:], b, out=out[half:])
    own.wait_stream(side)
    return out


CALLS: dict[str, Callable[..., Any]] = {
    "silu_torch": lambda x: F.silu(x),
    "silu_two_calls": silu,
    "silu_compiled": torch.compile(silu),
    "softmax_torch": lambda x: torch.softmax(x, 1),
    "softmax_parts": softmax,
    "softmax_compiled": torch.compile(softmax),
    "sum_torch": lambda x: x.sum(1),
    "rms_torch": lambda x: F.rms_norm(x, x.shape[1:], eps=1e-6),
    "rms_parts": rms,
    "rms_compiled": torch.compile(rms),
    "layernorm_torch": lambda x: F.layer_norm(x, x.shape[1:]),
    "transpose_torch": lambda x: x.t().contiguous(),
    "matmul_torch": lambda a, b: a @ b,
    "matmul_halves": halves,
    "linear_torch": linear,
    "linear_compiled": torch.compile(linear),
    "accumulate_torch": lambda x, y: x.add_(y),
    "gather_torch": lambda table, index: table.index_select(0, index),
    "scatter_torch": lambda x, index: torch.zeros_like(x).index_add_(0, index, x),
    "attention_torch": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    "attention_flash": lambda q, k, v: attention(q, k, v, SDPBackend.FLASH_ATTENTION),
    "attention_efficient": lambda q, k, v: attention(q, k, v, SDPBackend.EFFICIENT_ATTENTION),
    "attention_cudnn": lambda q, k, v: attention(q, k, v, SDPBackend.CUDNN_ATTENTION),
    "attention_parts": lambda q, k, v: (
        torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v
    ),
    "moments_torch": lambda x: torch.var_mean(x, 1),
    "largest_torch": lambda x: torch.max(x, 1),
    "sorted_torch": lambda x: torch.sort(x, 1).values,
    "cumulative_torch": lambda x: torch.cumsum(x, 1),
    "spectrum_torch": lambda x: torch.fft.rfft(x, dim=1),
    "convolve_torch": lambda x, w: F.conv2d(x, w, padding=1),  # in TF32, which is the default
}
