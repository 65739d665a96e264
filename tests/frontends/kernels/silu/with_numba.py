# mypy: ignore-errors
"""Numba, on torch's stream."""

import math

import torch
from numba import cuda


@cuda.jit("void(float32[::1], float32[::1])", lineinfo=True)
def silu(x, out):
    i = cuda.grid(1)
    if i < x.size:
        v = x[i]
        out[i] = v / (1 + math.exp(-v))


def run(x):
    out = torch.empty_like(x)
    stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
    views = (cuda.as_cuda_array(t, sync=False) for t in (x, out))
    silu[x.numel() // 256, 256, stream](*views)
    return out
