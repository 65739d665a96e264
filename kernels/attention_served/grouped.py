"""Grouped-query attention: each query head finds its key head by index."""

from functools import cache
from math import e, log2

import torch
from torch.nn.functional import pad

from workbench import cuda

# By head dimension: consumer warpgroups, keys per tile, tiles in the ring buffer.
TILES = {64: (4, 64, 6), 128: (2, 128, 2)}
L2_SECTION = 32 << 20  # bytes of K and V that the blocks use at a time


def shared_bytes(d: int) -> int:
    consumers, tile, stages = TILES[d]
    return (2 * 64 * consumers + 2 * stages * tile) * d * 2 + 1024 + 512


def declare(d: int, causal: bool, dtype: torch.dtype) -> cuda.Kernel:
    consumers, tile, stages = TILES[d]
    defines = {"HEAD_DIM": d, "CAUSAL": causal, "GROUPS": consumers, "TILE": tile, "STAGES": stages}
    defines["SHARED_BYTES"] = shared_bytes(d)
    if dtype == torch.bfloat16:
        defines["BF16"] = 1
    return cuda.kernel("grouped.cu", "attention_forward", defines=defines)


kernels = {
    (d, causal, dtype): declare(d, causal, dtype)
    for d in TILES
    for causal in (False, True)
    for dtype in (torch.float16, torch.bfloat16)
}


params = cuda.params(fresh=0)  # 1: a separate counter for each call


@cache
def shared_counter(device: torch.device) -> torch.Tensor:
    """Tiles taken and blocks finished. The kernel resets both to zero."""
    return torch.zeros(2, dtype=torch.int32, device=device)


def counter(device: torch.device) -> torch.Tensor:
    if params["fresh"]:
        return torch.zeros(2, dtype=torch.int32, device=device)
    return shared_counter(device)


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    key_heads = k.shape[1]
    group_size = h // key_heads
    if (d, causal, q.dtype) not in kernels:
        raise NotImplementedError("head dimension 64 or 128, fp16 or bf16")
    if (keys := k.shape[2]) != s:
        if keys < s:
            raise NotImplementedError("fewer keys than queries")
        return run(pad(q, (0, 0, keys - s, 0)), k, v, causal)[:, keys - s :].contiguous()
    if h % key_heads:
        raise NotImplementedError("query heads must be a multiple of key heads")
    for x in (q, k, v):
        strides = x.stride()
        if strides[3] != 1 or x.data_ptr() % 16 or any(n % 8 or not n for n in strides[:3]):
            raise NotImplementedError("rows must be contiguous, 16-byte aligned and not expanded")
    out = torch.empty((b, s, h, d), dtype=q.dtype, device=q.device)
    consumers, tile, _ = TILES[d]
    rows = 64 * consumers
    maps = [cuda.tensor_map(x, (1, 1, box, 64)) for x, box in ((q, rows), (k, tile), (v, tile))]
    heads_in_l2 = group_size * max(1, min(b * key_heads, L2_SECTION // (4 * s * d)))
    sm_count = torch.cuda.get_device_properties(q.device).multi_processor_count
    blocks = min(sm_count, -(-s // rows) * b * h)
    kernels[d, causal, q.dtype][blocks, 128 * (consumers + 1), shared_bytes(d)](
        *maps, out, counter(q.device), s, b * h, h, group_size, heads_in_l2, d**-0.5 * log2(e)
    )
    return out
