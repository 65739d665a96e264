"""Weights by bulk copies."""

import torch

from workbench import cuda

params = cuda.params(rows=64, group=0)
TILE_ROWS, TILE_COLS = params["rows"], 128
STAGES = {64: 4, 128: 3}[TILE_ROWS]  # two blocks fit an SM
THREADS = 2 * TILE_ROWS
SHARED_BYTES = STAGES * (TILE_ROWS + TILE_COLS) * 128 + 2048
ROW = 256 * 8  # elements of a row that a block of pieces.cuh has
routing = cuda.variant("route")
defines = {**params, "stages": STAGES, "shared_bytes": SHARED_BYTES}
activating, product = (
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
    order, place, tiles = routing.run(topk_ids, experts, TILE_ROWS)

    projected = x.new_empty(rows, hidden)
    activated = x.new_empty(rows, intermediate)
    out = torch.empty_like(x)
    part = (1, 2, TILE_COLS // 2, 64)
    weights = cuda.tensor_map(w13.view(experts, 2, intermediate, hidden), part)
    grid = len(tiles) * (2 * intermediate // TILE_COLS)
    activating[grid, THREADS, SHARED_BYTES](
        weights, x, order, activated, tiles, topk, intermediate, hidden
    )
    part = (1, 1, TILE_COLS, 64)
    weights = cuda.tensor_map(w2.view(experts, 1, hidden, intermediate), part)
    grid = len(tiles) * (hidden // TILE_COLS)
    product[grid, THREADS, SHARED_BYTES](
        weights, activated, order, projected, tiles, topk, hidden, intermediate
    )
    combine[(tokens, -(-hidden // ROW)), 256](projected, place, topk_weights, out, topk, hidden)
    return out
