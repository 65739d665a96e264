"""Tokens fetched by the first product itself."""

import torch

from workbench import cuda

TILE_ROWS, TILE_COLS, THREADS = 64, 128, 256
SHARED_BYTES = 4 * (TILE_ROWS + TILE_COLS) * (64 + 8) * 2  # four tiles of rows of 64, padded
ROW = 256 * 8  # elements of a row that a block of pieces.cuh has
routing = cuda.variant("route")
gathering, product = (
    cuda.kernel("fix4.cu", "product", defines={"gathers": gathers, "shared_bytes": SHARED_BYTES})
    for gathers in (1, 0)
)
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

    projected = x.new_empty(rows, hidden)
    both = x.new_empty(rows, 2 * intermediate)
    activated = x.new_empty(rows, intermediate)
    out = torch.empty_like(x)
    per_hidden, per_intermediate = -(-hidden // ROW), -(-intermediate // ROW)

    grid = len(tiles), 2 * intermediate // TILE_COLS
    gathering[grid, THREADS, SHARED_BYTES](
        x, order, w13, both, tiles, topk, 2 * intermediate, hidden
    )
    activate[(rows, per_intermediate), 256](both, activated, intermediate)
    grid = len(tiles), hidden // TILE_COLS
    product[grid, THREADS, SHARED_BYTES](
        activated, order, w2, projected, tiles, topk, hidden, intermediate
    )
    combine[(tokens, per_hidden), 256](projected, place, topk_weights, out, topk, hidden)
    return out
