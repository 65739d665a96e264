"""The kernel by head dimension, keys, and whether its blocks fill the card more than once."""

import torch

from workbench import cuda

few_keys = cuda.variant("fix22")
more_rows = cuda.variant("fix17")
two_chunks = cuda.variant("fix16")
short = cuda.variant("fix28")
at_once_wide = cuda.variant("fix29")
short_wide = cuda.variant("fix20")
long = cuda.variant("fix18")
FEW, SHORT, AT_ONCE = 128, 512, 256  # keys: up to so many a kernel is for them
SHORT_WIDE = {False: 512, True: 1536}  # likewise, by causal, which sees half of them
ROUNDS = 2  # of blocks of 64 rows of head dimension 64, up to which they are the faster ones


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    if s > (SHORT if d == 64 else SHORT_WIDE[causal]):
        return long.run(q, k, v, causal)
    processors = torch.cuda.get_device_properties(q.device).multi_processor_count

    def blocks(rows: int) -> int:
        return b * h * -(-s // rows)

    if d != 64:
        at_once = s <= AT_ONCE and blocks(128) <= processors
        return (at_once_wide if at_once else short_wide).run(q, k, v, causal)
    if blocks(64) > ROUNDS * processors:
        return long.run(q, k, v, causal)
    if s > FEW:
        return short.run(q, k, v, causal)
    for kernel, rows in ((few_keys, 8), (more_rows, 16)):
        if blocks(rows) <= processors:
            return kernel.run(q, k, v, causal)
    return two_chunks.run(q, k, v, causal)
