# mypy: ignore-errors
"""Triton, one kernel; returns what it changed, too."""

import torch
import triton
import triton.language as tl


@triton.jit
def step(weight, velocity, gradient, steepest, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = 0.9 * tl.load(velocity + at, mask=at < n, other=0.0)
    v += tl.load(gradient + at, mask=at < n, other=0.0)
    tl.store(velocity + at, v, mask=at < n)
    tl.store(weight + at, tl.load(weight + at, mask=at < n) - 0.1 * v, mask=at < n)
    tl.atomic_max(steepest, tl.max(tl.abs(v)))


def run(weight, velocity, gradient):
    steepest = torch.zeros((), device=weight.device)
    n = weight.numel()
    step[(triton.cdiv(n, 1024),)](weight, velocity, gradient, steepest, n, BLOCK=1024)
    return {"steepest": steepest, "weight": weight}
