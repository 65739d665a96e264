"""The kernels by the number of tokens that an expert gets on average."""

import torch

from workbench import cuda

FEW_TOKENS, FEW_SLOTS = 16, 128  # that the streams take
STREAM, SHARE = 3, 256  # tokens of an expert: fewer than that, and so many
QUICK = 1 << 28  # bytes of weights, which are read in about 60 us
early = cuda.variant("fix14")
streams = cuda.variant("fix11")
tiles = cuda.variant("fix10", lag=0)
pairs = cuda.variant("fix10", lag=0, cluster=2, group=8, tanh=1)


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
    chosen = pairs if slots >= SHARE * experts else tiles
    if tokens <= FEW_TOKENS and slots <= FEW_SLOTS and slots < STREAM * experts:
        is_quick = 6 * slots * hidden * intermediate < QUICK
        chosen = early if tokens == 1 and is_quick else streams
    return chosen.run(x, topk_ids, topk_weights, w13, w2)
