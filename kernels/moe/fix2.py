"""Both products on the tensor cores, by mma.sync."""

import torch

from workbench import cuda

TILE_ROWS, TILE_COLS, THREADS = 64, 128, 256
BLOCK_COLS = 256 * 8  # columns per block, as in chunks.cuh
routing = cuda.variant("route")
gather = cuda.kernel("gather.cu", "gather")
product = cuda.kernel("fix2.cu", "product")
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
    slot, row, tiles = routing.run(topk_ids, experts, TILE_ROWS)

    gathered, projected = (x.new_empty(rows, hidden) for _ in range(2))
    gate_up = x.new_empty(rows, 2 * intermediate)
    activated = x.new_empty(rows, intermediate)
    out = torch.empty_like(x)
    hidden_blocks, intermediate_blocks = -(-hidden // BLOCK_COLS), -(-intermediate // BLOCK_COLS)

    gather[(rows, hidden_blocks), 256](x, slot, gathered, topk, hidden)
    grid = len(tiles), 2 * intermediate // TILE_COLS
    product[grid, THREADS](gathered, w13, gate_up, tiles, 2 * intermediate, hidden)
    activate[(rows, intermediate_blocks), 256](gate_up, activated, intermediate)
    grid = len(tiles), hidden // TILE_COLS
    product[grid, THREADS](activated, w2, projected, tiles, hidden, intermediate)
    combine[(tokens, hidden_blocks), 256](projected, row, topk_weights, out, topk, hidden)
    return out
