"""Dispatcher: fix19 for few tokens per expert, fix20 for many tiles, else fix18."""

import torch

from workbench import cuda

FEW_PER_EXPERT = 13  # maximum of mean tokens per expert for fix19
TILES_PER_SM = 2  # tiles of the down projection, from which dynamic scheduling pays off
TILE_COLUMNS = 256  # output columns of a tile
others = cuda.variant("fix18")
few_per_expert = cuda.variant("fix19")
dynamic_tiles = cuda.variant("fix20")


def run(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
) -> torch.Tensor:
    tokens, hidden = x.shape
    experts, slots = len(w2), topk_ids.numel()
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    candidates = []
    if tokens > 1 and slots <= FEW_PER_EXPERT * experts:
        candidates.append(few_per_expert)
    if tokens > 1 and experts * hidden >= TILES_PER_SM * TILE_COLUMNS * sms:
        candidates.append(dynamic_tiles)
    for candidate in candidates:
        try:
            return candidate.run(x, topk_ids, topk_weights, w13, w2)
        except NotImplementedError:  # sizes that the kernel does not support
            pass
    return others.run(x, topk_ids, topk_weights, w13, w2)
