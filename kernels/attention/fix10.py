"""Persistent blocks, which take tiles of query rows from a counter."""

from functools import cache

import torch

from workbench import cuda

params = cuda.params(groups=2, tile=128, stages=2, pingpong=0, polynomial=0)
rows = 64 * params["groups"]
L2_SECTION = 32 << 20  # bytes of K and V that the blocks use at a time


def shared_bytes(d: int) -> int:
    return (2 * rows + 2 * params["stages"] * params["tile"]) * d * 2 + 1024 + 512


def declare(d: int, causal: bool, dtype: torch.dtype) -> cuda.Kernel:
    defines = {"HEAD_DIM": d, "CAUSAL": causal, "SHARED_BYTES": shared_bytes(d), **params}
    if dtype == torch.bfloat16:
        defines["BF16"] = 1
    return cuda.kernel("fix10.cu", "attention_forward", defines=defines)


dtypes = (torch.float16,) if params["polynomial"] else (torch.float16, torch.bfloat16)
kernels = {
    (d, causal, dtype): declare(d, causal, dtype)
    for d in (64, 128)
    if shared_bytes(d) <= 227 << 10
    for causal in (False, True)
    for dtype in dtypes
}


@cache
def counter(device: torch.device) -> torch.Tensor:
    """Tiles taken and blocks finished. The kernel resets both to zero."""
    return torch.zeros(2, dtype=torch.int32, device=device)


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    if (d, causal, q.dtype) not in kernels:
        known = sorted({f"{d} {str(t).removeprefix('torch.')}" for d, _, t in kernels})
        raise NotImplementedError(f"supported head dimensions and types: {', '.join(known)}")
    out = torch.empty_like(q)
    tile = params["tile"]
    maps = [
        cuda.tensor_map(x.view(b * h, s, d), (1, box, 64))
        for x, box in ((q, rows), (k, tile), (v, tile))
    ]
    heads_in_l2 = max(1, min(b * h, L2_SECTION // (4 * s * d)))
    sm_count = torch.cuda.get_device_properties(q.device).multi_processor_count
    blocks = min(sm_count, -(-s // rows) * b * h)
    kernels[d, causal, q.dtype][blocks, 128 * (params["groups"] + 1), shared_bytes(d)](
        *maps, out, counter(q.device), s, b * h, heads_in_l2, d**-0.5
    )
    return out
