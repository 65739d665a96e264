"""The kernel by head dimension, number of keys, of blocks and of queries."""

import torch

from workbench import cuda

fitted = cuda.variant("fitted", polynomial=3)
fitted_bfloat16 = cuda.variant("fitted")
long = cuda.variant("packed")
ROUNDS = 2  # of blocks, up to which those of the fitted kernel are the faster ones


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    keys = k.shape[2]
    processors = torch.cuda.get_device_properties(q.device).multi_processor_count
    at_once = processors * (4 if keys <= 128 else 2 if keys <= 256 else 1)
    if d == 64 and keys <= 512 and -(-s // 64) * b * h <= ROUNDS * at_once:
        return (fitted_bfloat16 if q.dtype == torch.bfloat16 else fitted).run(q, k, v, causal)
    return long.run(q, k, v, causal)
