"""The kernel by head dimension, number of keys, and how many rounds the blocks of few keys take."""

import torch

from workbench import cuda

few_keys = cuda.variant("fix22")
short = cuda.variant("fix25")
short_wide = cuda.variant("fix20")
long = cuda.variant("fix18")
FEW, SHORT, SHORT_WIDE = 128, 512, 256  # keys that fix22, fix25 and fix20 are for
ROUNDS = 2  # of blocks of fix25, up to which they are the faster ones
FEW_ROUNDS = 4  # of blocks of fix22
FEW_ROWS, SHORT_ROWS = 8, 64  # query rows of a block of fix22 and fix25


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    if d != 64 or s > SHORT:
        return (short_wide if s <= SHORT_WIDE else long).run(q, k, v, causal)
    processors = torch.cuda.get_device_properties(q.device).multi_processor_count
    if s <= FEW and b * h * -(-s // FEW_ROWS) <= FEW_ROUNDS * processors:
        return few_keys.run(q, k, v, causal)
    if b * h * -(-s // SHORT_ROWS) <= ROUNDS * processors:
        return short.run(q, k, v, causal)
    return long.run(q, k, v, causal)
