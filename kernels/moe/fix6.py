"""Warp specialization: producer warps load weights by TMA and tokens by cp.async, for wgmma."""

import torch

from workbench import cuda

params = cuda.params(persistent=0, grain=128, cluster=1, lag=2, pending=1, together=0)
STAGES, TOKENS = 4, 128  # maximum tokens per tile
SHARED_BYTES = STAGES * (2 * 128 + TOKENS) * 128 + 2 * TOKENS * 128 + 3072
MAX_TOPK = 8
BLOCK_COLS = 256 * 8  # columns per block, as in chunks.cuh
sorting = cuda.variant("dispatch")
defines = {name: params[name] for name in ("grain", "cluster", "lag", "pending")}
defines |= {"stages": STAGES, "shared_bytes": SHARED_BYTES}
up = cuda.kernel("fix6.cu", "product", defines={"gather": 1, **defines})
down = cuda.kernel("fix6.cu", "product", defines={"gather": 0, **defines})
combine = cuda.kernel("combine.cu", "combine")
weigh = {
    topk: cuda.kernel("weigh.cu", "weigh", defines={"topk": topk})
    for topk in range(1, MAX_TOPK + 1)
}


def blocks(experts: int, slots: int, row_tiles: int, device: torch.device) -> int:
    """Number of blocks: one per SM if persistent, else one per possible tile."""
    if params["persistent"]:
        return torch.cuda.get_device_properties(device).multi_processor_count
    cluster_tokens = params["cluster"] * TOKENS
    return (slots // cluster_tokens + min(experts, slots)) * row_tiles * params["cluster"]


def run(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
) -> torch.Tensor:
    tokens, hidden = x.shape
    experts, _, intermediate = w2.shape
    topk = topk_ids.shape[1]
    slots = tokens * topk
    if hidden % 128 or intermediate % 128 or topk > MAX_TOPK:
        raise NotImplementedError("only multiples of 128, and at most 8 experts per token")
    first_row, token, row, _ = sorting.run(topk_ids, experts)

    box = (1, 2 // params["cluster"], 128, 64)  # of weights, that one block copies
    h = x.new_empty(slots, intermediate)
    weights = cuda.tensor_map(w13.view(experts, 2, intermediate, hidden), box)
    grid = blocks(experts, slots, intermediate // 128, x.device)
    up[grid, 384, SHARED_BYTES](
        weights, x, token, first_row, h, experts, hidden // 64, intermediate
    )

    projected = x.new_empty(slots, hidden)
    weights = cuda.tensor_map(w2.view(experts, hidden // 128, 128, intermediate), box)
    h_map = cuda.tensor_map(h, (32, 64))
    grid = blocks(experts, slots, -(-hidden // 256), x.device)
    down[grid, 384, SHARED_BYTES](
        weights, h_map, first_row, projected, experts, intermediate // 64, hidden
    )

    out = torch.empty_like(x)
    if params["together"]:
        weigh[topk][tokens, hidden // 8](projected, row, topk_weights, out)
    else:
        grid_2d = tokens, -(-hidden // BLOCK_COLS)
        combine[grid_2d, 256](projected, row, topk_weights, out, topk, hidden)
    return out
