"""The kernel by head dimension, number of keys, and how many blocks of it there are."""

import torch

from workbench import cuda

few_keys = cuda.variant("fix17")
short = cuda.variant("fix16")
long = cuda.variant("fix14")
ROWS, FEW, SHORT = 16, 128, 512  # query rows of a block of fix17; keys that it and fix16 can take


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    if d != 64 or s > SHORT:
        return long.run(q, k, v, causal)
    processors = torch.cuda.get_device_properties(q.device).multi_processor_count
    if s <= FEW and b * h * -(-s // ROWS) <= 2 * processors:
        return few_keys.run(q, k, v, causal)
    return short.run(q, k, v, causal)
