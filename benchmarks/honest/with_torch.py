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


def rope(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    left, right = x.chunk(2, 1)
    return torch.cat((left * c - right * s, right * c + left * s), 1)


def swiglu(x: Tensor, y: Tensor) -> Tensor:
    return F.silu(x) * y


def gelu(x: Tensor) -> Tensor:
    return F.gelu(x)


def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def rms_gradient(x: Tensor, g: Tensor) -> Tensor:
    """As autograd has it."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(F.rms_norm(x, x.shape[1:], eps=1e-6), x, g)[0]


def rms_formula(x: Tensor, g: Tensor) -> Tensor:
    scale = torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6)
    return g * scale - x * (x * g).mean(1, keepdim=True) * scale**3


def quantised(x: Tensor) -> Tensor:
    return (x * 16).round().clamp(-128, 127).to(torch.int8)


def counted(index: Tensor) -> Tensor:
    return index.new_zeros(256).scatter_add_(0, index, torch.ones_like(index))


def stencil(x: Tensor) -> Tensor:
    return F.avg_pool1d(x.unsqueeze(1), 3, 1, 1).squeeze(1)


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
    "gelu_torch": gelu,
    "gelu_compiled": torch.compile(gelu),
    "add_torch": add,
    "add_compiled": torch.compile(add),
    "swiglu_torch": swiglu,
    "swiglu_compiled": torch.compile(swiglu),
    "rope_torch": rope,
    "rope_compiled": torch.compile(rope),
    "gradient_torch": rms_gradient,
    "gradient_formula": rms_formula,
    "gradient_compiled": torch.compile(rms_formula),
    "logsumexp_torch": lambda x: torch.logsumexp(x, 1),
    "entropy_torch": lambda x, index: F.cross_entropy(x, index, reduction="none"),
    "normalized_torch": lambda x: F.normalize(x),
    "groups_torch": lambda x: F.group_norm(x, 32),
    "where_torch": lambda x, y: torch.where(x > 0, x, y),
    "concat_torch": lambda x, y: torch.cat((x, y), 1),
    "flip_torch": lambda x: x.flip(1),
    "batched_torch": lambda a, b: a @ b,
    "batched_einsum": lambda a, b: torch.einsum("bij,bjk->bik", a, b),
    "gemv_torch": lambda x, v: x @ v,
    "outer_torch": lambda u, v: torch.outer(u, v),
    "pool_torch": lambda x: F.avg_pool2d(x, 2),
    "quantised_torch": quantised,
    "quantised_compiled": torch.compile(quantised),
    "argmax_torch": lambda x: torch.argmax(x, 1),
    "topk_torch": lambda x: torch.topk(x, 16).values,
    "histogram_torch": counted,
    "stencil_torch": stencil,
    "dequantised_torch": lambda q, s: q * s[:, None],
    "convolve_torch": lambda x, w: F.conv2d(x, w, padding=1),  # in TF32, which is the default
}
