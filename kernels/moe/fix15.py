"""Dispatcher: fix11, fix14 or fix10 (with or without clusters), by tokens per expert."""

import torch

from workbench import cuda

MAX_TOKENS, MAX_SLOTS = 16, 128  # limits of fix11 and fix14
FEW_PER_EXPERT, MANY_PER_EXPERT = 3, 256  # mean tokens per expert: below and from
# fix14's early start helps below this many bytes of weights (about 60 us of reading).
EARLY_START_BYTES = 1 << 28
early_start = cuda.variant("fix14")
few_tokens = cuda.variant("fix11")
tiles = cuda.variant("fix10", lag=0)
clusters = cuda.variant("fix10", lag=0, cluster=2, group=8, tanh=1)


def run(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
) -> torch.Tensor:
    tokens, hidden = x.shape
    experts, _, intermediate = w2.shape
    slots = topk_ids.numel()
    chosen = clusters if slots >= MANY_PER_EXPERT * experts else tiles
    if tokens <= MAX_TOKENS and slots <= MAX_SLOTS and slots < FEW_PER_EXPERT * experts:
        is_short = 6 * slots * hidden * intermediate < EARLY_START_BYTES
        chosen = early_start if tokens == 1 and is_short else few_tokens
    return chosen.run(x, topk_ids, topk_weights, w13, w2)
