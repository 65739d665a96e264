"""Several heads of queries in a tile of rows, where there are few queries."""

from math import e, log2

import torch

from workbench import cuda

whole = cuda.variant("lengths")
# By head dimension: warpgroups that compute, keys of a tile, tiles of keys in shared memory.
TILES = {64: (4, 64, 6), 128: (2, 128, 2)}
# Heads of queries in a tile: 16 rows of each at least.
PACKS = {64: (2, 4, 8, 16), 128: (2, 4, 8)}
L2_SECTION = 32 << 20  # bytes of K and V that blocks work on at a time


def shared_bytes(d: int) -> int:
    groups, tile, stages = TILES[d]
    return (2 * 64 * groups + 2 * stages * tile) * d * 2 + 1024 + 512


def declare(d: int, causal: bool, dtype: torch.dtype, pack: int) -> cuda.Kernel:
    groups, tile, stages = TILES[d]
    defines = {"HEAD_DIM": d, "CAUSAL": causal, "GROUPS": groups, "TILE": tile, "STAGES": stages}
    defines |= {"SHARED_BYTES": shared_bytes(d), "PACK": pack}
    if dtype == torch.bfloat16:
        defines["BF16"] = 1
    return cuda.kernel("packed.cu", "attention_forward", defines=defines)


# A causal mask at head dimension 64 is left to the whole ones: registers would be spilled for it.
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
    pack = packed(s, d, h // key_heads) if d in TILES else 1
    if (d, causal, q.dtype, pack) not in kernels or h % key_heads or (causal and s > keys):
        return whole.run(q, k, v, causal)
    for x in (q, k, v):
        steps = x.stride()
        if steps[3] != 1 or x.data_ptr() % 16 or any(n % 8 or not n for n in steps[:3]):
            raise NotImplementedError("rows in one piece, each at a multiple of 16 bytes")
    out = torch.empty((b, s, h, d), dtype=q.dtype, device=q.device)
    groups, tile, _ = TILES[d]
    rows, packs = 64 * groups // pack, h // pack
    boxes = ((q, (1, pack, rows, 64)), (k, (1, 1, tile, 64)), (v, (1, 1, tile, 64)))
    maps = [cuda.tensor_map(x, box) for x, box in boxes]
    per_key_head = packs // key_heads
    section = per_key_head * max(1, min(b * key_heads, L2_SECTION // (4 * keys * d)))
    processors = torch.cuda.get_device_properties(q.device).multi_processor_count
    blocks = min(processors, -(-s // rows) * b * packs)
    kernels[d, causal, q.dtype, pack][blocks, 128 * (groups + 1), shared_bytes(d)](
        *maps, out, s, keys, b * packs, packs, h // key_heads, section, d**-0.5 * log2(e)
    )
    return out


def packed(s: int, d: int, group: int) -> int:
    """Heads of a ``group`` in a tile, so that its tiles are as few as can be; 1 where none need to
    share one.
    """
    rows = 64 * TILES[d][0]
    return min((n for n in (1, *PACKS[d]) if group % n == 0), key=lambda n: -(-s * n // rows) / n)
