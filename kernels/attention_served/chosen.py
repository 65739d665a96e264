"""Dispatcher by head dimension and by the numbers of keys, blocks and queries."""

import torch

from workbench import cuda

fitted = cuda.variant("fitted")
persistent = cuda.variant("packed")
WAVES = 2  # up to this many waves of blocks, the fitted kernel is faster


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    keys = k.shape[2]
    sm_count = torch.cuda.get_device_properties(q.device).multi_processor_count
    resident_blocks = sm_count * (4 if keys <= 128 else 2 if keys <= 256 else 1)
    if d == 64 and keys <= 512 and -(-s // 64) * b * h <= WAVES * resident_blocks:
        return fitted.run(q, k, v, causal)
    return persistent.run(q, k, v, causal)
