"""Both products by wgmma, with both operands in shared memory."""

import torch

from workbench import cuda

params = cuda.params(rows=64, group=0)
TILE_ROWS, TILE_COLS = params["rows"], 128
STAGES = {64: 4, 128: 3}[TILE_ROWS]  # so that two blocks fit on an SM
THREADS = 2 * TILE_ROWS
SHARED_BYTES = STAGES * (TILE_ROWS + TILE_COLS) * 128 + 1024
BLOCK_COLS = 256 * 8  # columns per block, as in chunks.cuh
routing = cuda.variant("route")
defines = {**params, "stages": STAGES, "shared_bytes": SHARED_BYTES}
up, down = (
    cuda.kernel("wgmma.cu", "product", defines={"activates": activates, **defines})
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
    grid = len(tiles) * (2 * intermediate // TILE_COLS)
    up[grid, THREADS, SHARED_BYTES](x, slot, w13, activated, tiles, topk, intermediate, hidden)
    grid = len(tiles) * (hidden // TILE_COLS)
    down[grid, THREADS, SHARED_BYTES](
        activated, slot, w2, projected, tiles, topk, hidden, intermediate
    )
    combine[(tokens, -(-hidden // BLOCK_COLS)), 256](
        projected, row, topk_weights, out, topk, hidden
    )
    return out
