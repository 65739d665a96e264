"""Which tokens go to which expert, found by a block an expert: a part of other variants."""

from typing import NamedTuple

import torch

from workbench import cuda

THREADS, MOST_EXPERTS = 1024, 256
MOST_WORDS = 8  # of 1024 slots, of a warp
kernels = {
    words: cuda.kernel("dispatch.cu", "dispatch", defines={"threads": THREADS, "words": words})
    for words in (1, 2, 4, MOST_WORDS)
}


class Places(NamedTuple):
    """``first``: [experts + 1], an expert's first place; ``token``: [slots], whose slot is there;
    ``place``: [slots], where a slot is; ``done``: [experts], zeros.
    """

    first: torch.Tensor
    token: torch.Tensor
    place: torch.Tensor
    done: torch.Tensor


def run(topk_ids: torch.Tensor, experts: int) -> Places:
    slots, topk = topk_ids.numel(), topk_ids.shape[1]
    words = 1 << (-(-slots // (32 * THREADS)) - 1).bit_length()
    if experts > MOST_EXPERTS or words > MOST_WORDS:
        raise NotImplementedError(f"{MOST_EXPERTS} experts, {MOST_WORDS * 32 * THREADS} slots")
    places = Places(*(topk_ids.new_empty(size) for size in (experts + 1, slots, slots, experts)))
    kernels[words][experts, THREADS](topk_ids, *places, slots, topk)
    return places
