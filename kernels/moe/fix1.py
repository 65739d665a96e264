"""Rows sorted by expert, and both products in tiles."""

import torch

from workbench import cuda

TILE_ROWS, TILE_COLS, THREADS = 64, 64, 256
ROW = 256 * 8  # elements of a row that a block of pieces.cuh has
routing = cuda.variant("route")
gather = cuda.kernel("gather.cu", "gather")
product = cuda.kernel("fix1.cu", "product")
activate = cuda.kernel("activate.cu", "activate")
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

    gathered, projected = (x.new_empty(rows, hidden) for _ in range(2))
    both = x.new_empty(rows, 2 * intermediate)
    activated = x.new_empty(rows, intermediate)
    out = torch.empty_like(x)
    per_hidden, per_intermediate = -(-hidden // ROW), -(-intermediate // ROW)

    gather[(rows, per_hidden), 256](x, order, gathered, topk, hidden)
    grid = len(tiles), 2 * intermediate // TILE_COLS
    product[grid, THREADS](gathered, w13, both, tiles, 2 * intermediate, hidden)
    activate[(rows, per_intermediate), 256](both, activated, intermediate)
    grid = len(tiles), hidden // TILE_COLS
    product[grid, THREADS](activated, w2, projected, tiles, hidden, intermediate)
    combine[(tokens, per_hidden), 256](projected, place, topk_weights, out, topk, hidden)
    return out
