"""The kernel by head dimension and number of keys."""

import torch

from workbench import cuda

short = cuda.variant("fix11", stagger=1, early=1, polynomial=3)
short_bfloat16 = cuda.variant("fix11", stagger=1, early=1)
narrow = cuda.variant("fix10", groups=4, tile=64, stages=6)
narrow_long = cuda.variant("fix10", groups=3, stages=3)
wide = cuda.variant("fix10")


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    s, d = q.shape[-2:]
    if d == 64 and s <= 512:
        chosen = short_bfloat16 if q.dtype == torch.bfloat16 else short
    elif d == 64:
        chosen = narrow if s <= 4096 else narrow_long
    else:
        chosen = wide
    return chosen.run(q, k, v, causal)
