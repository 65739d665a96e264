"""Modules that set something for their process when they are imported, or draw something."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable

import torch
from torch.nn import functional as F

Tensor = torch.Tensor


def silu(x: Tensor) -> Tensor:
    return F.silu(x)


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def silu_no_grad() -> Callable[..., Tensor]:
    torch.set_grad_enabled(False)
    return silu


def silu_seeded() -> Callable[..., Tensor]:
    torch.manual_seed(1)
    random.seed(1)
    return silu


def silu_quiet() -> Callable[..., Tensor]:
    warnings.simplefilter("ignore")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(2)
    return silu


def silu_signs() -> Callable[..., Tensor]:
    """Signs that it draws, which leave the result as it is."""
    signs = torch.randn(1024, device="cuda").sign()
    return lambda x: F.silu(x * signs * signs)


def sum_double() -> Callable[..., Tensor]:
    torch.set_default_dtype(torch.float64)
    return lambda x: x.sum(1)


def softmax_deterministic() -> Callable[..., Tensor]:
    torch.use_deterministic_algorithms(True)
    return lambda x: torch.softmax(x, 1)


def matmul_ieee() -> Callable[..., Tensor]:
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    return product


def matmul_highest() -> Callable[..., Tensor]:
    torch.set_float32_matmul_precision("highest")
    return product


def matmul_reduced() -> Callable[..., Tensor]:
    """Sums of half products in half precision, where cuBLAS splits them."""
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True
    return product


def convolve_benchmark() -> Callable[..., Tensor]:
    torch.backends.cudnn.benchmark = True
    return lambda x, w: F.conv2d(x, w, padding=1)


def convolve_exact() -> Callable[..., Tensor]:
    torch.backends.cudnn.allow_tf32 = False
    return lambda x, w: F.conv2d(x, w, padding=1)


def attention_math() -> Callable[..., Tensor]:
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v)


MAKERS = {
    made.__name__: made
    for made in (
        *(silu_no_grad, silu_seeded, silu_quiet, silu_signs, sum_double, softmax_deterministic),
        *(matmul_ieee, matmul_highest, matmul_reduced, convolve_benchmark, convolve_exact),
        attention_math,
    )
}
