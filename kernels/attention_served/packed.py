"""Few queries: several query heads share a tile of rows."""

from math import e, log2

import torch

from workbench import cuda

unpacked = cuda.variant("lengths")
# By head dimension: consumer warpgroups, keys per tile, tiles in the ring buffer.
TILES = {64: (4, 64, 6), 128: (2, 128, 2)}
# Query heads per tile, by head dimension: at least 16 rows per head.
PACKS = {64: (2, 4, 8, 16), 128: (2, 4, 8)}
L2_SECTION = 32 << 20  # bytes of K and V that the blocks use at a time


def shared_bytes(d: int) -> int:
    consumers, tile, stages = TILES[d]
    return (2 * 64 * consumers + 2 * stages * tile) * d * 2 + 1024 + 512


def declare(d: int, causal: bool, dtype: torch.dtype, pack: int) -> cuda.Kernel:
    consumers, tile, stages = TILES[d]
    defines = {"HEAD_DIM": d, "CAUSAL": causal, "GROUPS": consumers, "TILE": tile, "STAGES": stages}
    defines |= {"SHARED_BYTES": shared_bytes(d), "PACK": pack}
    if dtype == torch.bfloat16:
        defines["BF16"] = 1
    return cuda.kernel("packed.cu", "attention_forward", defines=defines)


# The unpacked kernel takes causal masks at head dimension 64: here they would spill registers.
kernels = {
    (d, causal, dtype, pack): declare(d, causal, dtype, pack)
    for d, causal in ((64, False), (128, False), (128, True))
    for dtype in (torch.float16, torch.bfloat16)
    for pack in PACKS[d]
}


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    key_heads, keys = k.shape[1:3]
    causal = causal and s > 1
    pack = heads_per_tile(s, d, h // key_heads) if d in TILES else 1
    if (d, causal, q.dtype, pack) not in kernels or h % key_heads or (causal and s > keys):
        return unpacked.run(q, k, v, causal)
    for x in (q, k, v):
        strides = x.stride()
        if strides[3] != 1 or x.data_ptr() % 16 or any(n % 8 or not n for n in strides[:3]):
            raise NotImplementedError("rows must be contiguous, 16-byte aligned and not expanded")
    out = torch.empty((b, s, h, d), dtype=q.dtype, device=q.device)
    consumers, tile, _ = TILES[d]
    rows, packs = 64 * consumers // pack, h // pack
    boxes = ((q, (1, pack, rows, 64)), (k, (1, 1, tile, 64)), (v, (1, 1, tile, 64)))
    maps = [cuda.tensor_map(x, box) for x, box in boxes]
    packs_per_key_head = packs // key_heads
    packs_in_l2 = packs_per_key_head * max(1, min(b * key_heads, L2_SECTION // (4 * keys * d)))
    sm_count = torch.cuda.get_device_properties(q.device).multi_processor_count
    blocks = min(sm_count, -(-s // rows) * b * packs)
    kernels[d, causal, q.dtype, pack][blocks, 128 * (consumers + 1), shared_bytes(d)](
        *maps, out, s, keys, b * packs, packs, h // key_heads, packs_in_l2, d**-0.5 * log2(e)
    )
    return out


def heads_per_tile(s: int, d: int, group_size: int) -> int:
    """The smallest number of heads per tile that gives a group of query heads the fewest tiles."""
    rows = 64 * TILES[d][0]
    packs = (n for n in (1, *PACKS[d]) if group_size % n == 0)
    return min(packs, key=lambda n: -(-s * n // rows) / n)
