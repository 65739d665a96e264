"""The kernels by the number of tokens that an expert gets on average, and by the sizes."""

import torch

from workbench import cuda

FEW = 13  # tokens of an expert, up to which its weights come to its tokens
TILES = (
    2  # of an SM in the second product, from which on dealing them evens out more than it delays
)
ROWS = 256  # of a tile
others = cuda.variant("fix18")
few = cuda.variant("fix19")
tiles = cuda.variant("fix20")


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
    ahead = []
    if tokens > 1 and slots <= FEW * experts:
        ahead.append(few)
    if tokens > 1 and experts * hidden >= TILES * ROWS * sms:
        ahead.append(tiles)
    for one in ahead:
        try:
            return one.run(x, topk_ids, topk_weights, w13, w2)
        except NotImplementedError:  # sizes that it is not for
            pass
    return others.run(x, topk_ids, topk_weights, w13, w2)
