"""Views read through 4D tensor maps, and the result written as [B, S, H, D]."""

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
    return cuda.kernel("strided.cu", "attention_forward", defines=defines)


kernels = {
    (d, causal, dtype): declare(d, causal, dtype)
    for d in TILES
    for causal in (False, True)
    for dtype in (torch.float16, torch.bfloat16)
}


@cache
def counter(device: torch.device) -> torch.Tensor:
    """Tiles taken and blocks finished. The kernel resets both to zero."""
    return torch.zeros(2, dtype=torch.int32, device=device)


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    repeats = h // k.shape[1]
    if (d, causal, q.dtype) not in kernels:
        raise NotImplementedError("head dimension 64 or 128, fp16 or bf16")
    if (keys := k.shape[2]) != s:
        if keys < s:
            raise NotImplementedError("fewer keys than queries")
        return run(pad(q, (0, 0, keys - s, 0)), k, v, causal)[:, keys - s :].contiguous()
    for x in (q, k, v):
        strides = x.stride()
        if strides[3] != 1 or x.data_ptr() % 16 or any(n % 8 or not n for n in strides[:3]):
            raise NotImplementedError("rows must be contiguous, 16-byte aligned and not expanded")
    out = torch.empty((b, s, h, d), dtype=q.dtype, device=q.device)
    consumers, tile, _ = TILES[d]
    rows = 64 * consumers
    k, v = repeat_heads(k, repeats), repeat_heads(v, repeats)
    maps = [cuda.tensor_map(x, (1, 1, box, 64)) for x, box in ((q, rows), (k, tile), (v, tile))]
    heads_in_l2 = max(1, min(b * h, L2_SECTION // (4 * s * d)))
    sm_count = torch.cuda.get_device_properties(q.device).multi_processor_count
    blocks = min(sm_count, -(-s // rows) * b * h)
    kernels[d, causal, q.dtype][blocks, 128 * (consumers + 1), shared_bytes(d)](
        *maps, out, counter(q.device), s, b * h, h, heads_in_l2, d**-0.5 * log2(e)
    )
    return out


def repeat_heads(x: torch.Tensor, repeats: int) -> torch.Tensor:
    """Repeat each head: [B, H, S, D] to [B, H * repeats, S, D]. Without repeats, x itself."""
    if repeats == 1:
        return x
    b, h, s, d = x.shape
    return x[:, :, None].expand(b, h, repeats, s, d).reshape(b, h * repeats, s, d)
