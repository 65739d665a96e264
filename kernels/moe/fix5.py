"""Gate and up projection in one block, which activates them."""

import torch

from workbench import cuda

TILE_ROWS, TILE_COLS, THREADS = 64, 128, 256
SHARED_BYTES = 4 * (TILE_ROWS + TILE_COLS) * (64 + 8) * 2  # four tiles of rows of 64, padded
ROW = 256 * 8  # elements of a row that a block of pieces.cuh has
routing = cuda.variant("route")
params = cuda.params(trim=0)
defines = {"shared_bytes": SHARED_BYTES, **params}
activating, product = (
    cuda.kernel("fix5.cu", "product", defines={"activates": activates, **defines})
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
    grid = len(tiles), 2 * intermediate // TILE_COLS
    activating[grid, THREADS, SHARED_BYTES](
        x, order, w13, activated, tiles, topk, intermediate, hidden
    )
    grid = len(tiles), hidden // TILE_COLS
    product[grid, THREADS, SHARED_BYTES](
        activated, order, w2, projected, tiles, topk, hidden, intermediate
    )
    combine[(tokens, -(-hidden // ROW)), 256](projected, place, topk_weights, out, topk, hidden)
    return out
