"""The branch around the mask tests warp-uniform values."""

from math import e, log2

import torch

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
    return cuda.kernel("uniform.cu", "attention_forward", defines=defines)


kernels = {
    (d, causal, dtype): declare(d, causal, dtype)
    for d in TILES
    for causal in (False, True)
    for dtype in (torch.float16, torch.bfloat16)
}


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    key_heads, keys = k.shape[1:3]
    group_size = h // key_heads
    if (d, causal, q.dtype) not in kernels:
        raise NotImplementedError("head dimension 64 or 128, fp16 or bf16")
    if h % key_heads:
        raise NotImplementedError("query heads must be a multiple of key heads")
    if causal and s > keys:
        raise NotImplementedError("some queries would see no key")
    for x in (q, k, v):
        strides = x.stride()
        if strides[3] != 1 or x.data_ptr() % 16 or any(n % 8 or not n for n in strides[:3]):
            raise NotImplementedError("rows must be contiguous, 16-byte aligned and not expanded")
    out = torch.empty((b, s, h, d), dtype=q.dtype, device=q.device)
    consumers, tile, _ = TILES[d]
    rows = 64 * consumers
    maps = [cuda.tensor_map(x, (1, 1, box, 64)) for x, box in ((q, rows), (k, tile), (v, tile))]
    heads_in_l2 = group_size * max(1, min(b * key_heads, L2_SECTION // (4 * keys * d)))
    sm_count = torch.cuda.get_device_properties(q.device).multi_processor_count
    blocks = min(sm_count, -(-s // rows) * b * h)
    kernels[d, causal, q.dtype][blocks, 128 * (consumers + 1), shared_bytes(d)](
        *maps, out, s, keys, b * h, h, group_size, heads_in_l2, d**-0.5 * log2(e)
    )
    return out
