"""The first product gathers its tokens, without a gather kernel."""

import torch

from workbench import cuda

TILE_ROWS, TILE_COLS, THREADS = 64, 128, 256
SHARED_BYTES = 4 * (TILE_ROWS + TILE_COLS) * (64 + 8) * 2  # 4 stages, rows padded from 64 to 72
BLOCK_COLS = 256 * 8  # columns per block, as in chunks.cuh
routing = cuda.variant("route")
up, down = (
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
    slot, row, tiles = routing.run(topk_ids, experts, TILE_ROWS)

    projected = x.new_empty(rows, hidden)
    gate_up = x.new_empty(rows, 2 * intermediate)
    activated = x.new_empty(rows, intermediate)
    out = torch.empty_like(x)
    hidden_blocks, intermediate_blocks = -(-hidden // BLOCK_COLS), -(-intermediate // BLOCK_COLS)

    grid = len(tiles), 2 * intermediate // TILE_COLS
    up[grid, THREADS, SHARED_BYTES](x, slot, w13, gate_up, tiles, topk, 2 * intermediate, hidden)
    activate[(rows, intermediate_blocks), 256](gate_up, activated, intermediate)
    grid = len(tiles), hidden // TILE_COLS
    down[grid, THREADS, SHARED_BYTES](
        activated, slot, w2, projected, tiles, topk, hidden, intermediate
    )
    combine[(tokens, hidden_blocks), 256](projected, row, topk_weights, out, topk, hidden)
    return out
