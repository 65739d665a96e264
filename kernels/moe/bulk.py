"""As wgmma, with the weights loaded by TMA."""

import torch

from workbench import cuda

params = cuda.params(rows=64, group=0)
TILE_ROWS, TILE_COLS = params["rows"], 128
STAGES = {64: 4, 128: 3}[TILE_ROWS]  # so that two blocks fit on an SM
THREADS = 2 * TILE_ROWS
SHARED_BYTES = STAGES * (TILE_ROWS + TILE_COLS) * 128 + 2048
BLOCK_COLS = 256 * 8  # columns per block, as in chunks.cuh
routing = cuda.variant("route")
defines = {**params, "stages": STAGES, "shared_bytes": SHARED_BYTES}
up, down = (
    cuda.kernel("bulk.cu", "product", defines={"activates": activates, **defines})
    for activates in (1, 0)
)
combine = cuda.kernel("combine.cu", "combine")


def run(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
) -> torch.Tensor:
    tokens, topk = topk_ids.shape
    experts, hidden, intermediate = w2.shape
    rows = tokens * topk
    slot, row, tiles = routing.run(topk_ids, experts, TILE_ROWS)

    projected = x.new_empty(rows, hidden)
    activated = x.new_empty(rows, intermediate)
    out = torch.empty_like(x)
    box = (1, 2, TILE_COLS // 2, 64)
    weights = cuda.tensor_map(w13.view(experts, 2, intermediate, hidden), box)
    grid = len(tiles) * (2 * intermediate // TILE_COLS)
    up[grid, THREADS, SHARED_BYTES](weights, x, slot, activated, tiles, topk, intermediate, hidden)
    box = (1, 1, TILE_COLS, 64)
    weights = cuda.tensor_map(w2.view(experts, 1, hidden, intermediate), box)
    grid = len(tiles) * (hidden // TILE_COLS)
    down[grid, THREADS, SHARED_BYTES](
        weights, activated, slot, projected, tiles, topk, hidden, intermediate
    )
    combine[(tokens, -(-hidden // BLOCK_COLS)), 256](
        projected, row, topk_weights, out, topk, hidden
    )
    return out
