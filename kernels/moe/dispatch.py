"""Slots sorted by expert, with one block per expert. A part of other variants."""

from typing import NamedTuple

import torch

from workbench import cuda

THREADS, MAX_EXPERTS = 1024, 256
MAX_WORDS = 8  # 32-slot words per thread
kernels = {
    words: cuda.kernel("dispatch.cu", "dispatch", defines={"threads": THREADS, "words": words})
    for words in (1, 2, 4, MAX_WORDS)
}


class SortedSlots(NamedTuple):
    """Slots sorted by expert; a row is a position in this order.

    - ``first_row``: [experts + 1], the first row of each expert
    - ``token``: [slots], the token of each row
    - ``row``: [slots], the row of each slot
    - ``done``: [experts], counters, zero
    """

    first_row: torch.Tensor
    token: torch.Tensor
    row: torch.Tensor
    done: torch.Tensor


def run(topk_ids: torch.Tensor, experts: int) -> SortedSlots:
    slots, topk = topk_ids.numel(), topk_ids.shape[1]
    words = 1 << (-(-slots // (32 * THREADS)) - 1).bit_length()
    if experts > MAX_EXPERTS or words > MAX_WORDS:
        slots_limit = MAX_WORDS * 32 * THREADS
        raise NotImplementedError(f"at most {MAX_EXPERTS} experts and {slots_limit} slots")
    sizes = experts + 1, slots, slots, experts
    order = SortedSlots(*(topk_ids.new_empty(size) for size in sizes))
    kernels[words][experts, THREADS](topk_ids, *order, slots, topk)
    return order
