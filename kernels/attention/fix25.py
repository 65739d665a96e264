"""The kernel by head dimension, keys, and whether its blocks fill the card more than once."""

import torch

from workbench import cuda

few_keys = cuda.variant("fix22")
more_rows = cuda.variant("fix17")
two_chunks = cuda.variant("fix16")
short = cuda.variant("fix23")
short_wide = cuda.variant("fix20")
long = cuda.variant("fix18")
FEW, SHORT, SHORT_WIDE = 128, 512, 256  # keys: up to so many the first three, and those two
ROUNDS = 2  # of blocks of 64 rows, up to which they are the faster ones


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    if d != 64 or s > SHORT:
        return (short_wide if s <= SHORT_WIDE else long).run(q, k, v, causal)
    processors = torch.cuda.get_device_properties(q.device).multi_processor_count

    def blocks(rows: int) -> int:
        return b * h * -(-s // rows)

    if blocks(64) > ROUNDS * processors:
        return long.run(q, k, v, causal)
    if s > FEW:
        return short.run(q, k, v, causal)
    for kernel, rows in ((few_keys, 8), (more_rows, 16)):
        if blocks(rows) <= processors:
            return kernel.run(q, k, v, causal)
    return two_chunks.run(q, k, v, causal)
