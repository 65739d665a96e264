"""PyTorch: single calls of its libraries, several in a row, and its compiler."""

from __future__ import annotations

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

Tensor = torch.Tensor


def silu_torch(x: Tensor) -> Tensor:
    return F.silu(x)


def softmax_torch(x: Tensor) -> Tensor:
    return torch.softmax(x, 1)


def silu_two_calls(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


silu_compiled = torch.compile(lambda x: x * torch.sigmoid(x))


def softmax_parts(x: Tensor) -> Tensor:
    x = torch.exp(x - x.amax(1, keepdim=True))
    return x / x.sum(1, keepdim=True)


softmax_compiled = torch.compile(softmax_parts)


def sum_torch(x: Tensor) -> Tensor:
    return x.sum(1)


def rms_parts(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6)


rms_compiled = torch.compile(rms_parts)


def rms_torch(x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[1:], eps=1e-6)


def transpose_torch(x: Tensor) -> Tensor:
    return x.t().contiguous()


def matmul_torch(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def matmul_halves(a: Tensor, b: Tensor) -> Tensor:
    """Two products on two streams."""
    half, own, side = a.shape[0] // 2, torch.cuda.current_stream(), torch.cuda.Stream()
    out = torch.empty_like(a)
    side.wait_stream(own)
    torch.mm(a[:half], b, out=out[:half])
    with torch.cuda.stream(side):
        torch.mm(a[half:], b, out=out[half:])
    own.wait_stream(side)
    return out


def linear_torch(x: Tensor, w: Tensor) -> Tensor:
    return F.relu(x @ w)


linear_compiled = torch.compile(linear_torch)


def accumulate_torch(x: Tensor, y: Tensor) -> Tensor:
    return x.add_(y)


def gather_torch(table: Tensor, index: Tensor) -> Tensor:
    return table.index_select(0, index)


def scatter_torch(x: Tensor, index: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add_(0, index, x)


def attention_torch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def attention_flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return attention_torch(q, k, v)


def attention_efficient(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        return attention_torch(q, k, v)


def attention_cudnn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return attention_torch(q, k, v)


def attention_parts(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


def layernorm_torch(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[1:])


def moments_torch(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.var_mean(x, 1)


def largest_torch(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.max(x, 1)


def sorted_torch(x: Tensor) -> Tensor:
    return torch.sort(x, 1).values


def cumulative_torch(x: Tensor) -> Tensor:
    return torch.cumsum(x, 1)


def convolve_torch(x: Tensor, w: Tensor) -> Tensor:
    """In TF32, which cuDNN takes by default."""
    return F.conv2d(x, w, padding=1)


def spectrum_torch(x: Tensor) -> Tensor:
    out: Tensor = torch.fft.rfft(x, dim=1)
    return out
