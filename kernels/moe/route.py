"""Slots sorted by expert on the GPU, in one block. A part of other variants."""

from typing import NamedTuple

import torch

from workbench import cuda

MAX_EXPERTS = 1024
kernel = cuda.kernel("route.cu", "route")


class Routes(NamedTuple):
    """Slots sorted by expert; a row is a position in this order.

    - ``slot``: [slots], the slot of each row
    - ``row``: [slots], the row of each slot
    - ``tiles``: [maximum number of tiles, 4], described in route.cu
    """

    slot: torch.Tensor
    row: torch.Tensor
    tiles: torch.Tensor


def run(topk_ids: torch.Tensor, experts: int, tile_rows: int) -> Routes:
    if experts > MAX_EXPERTS:
        raise NotImplementedError(f"at most {MAX_EXPERTS} experts")
    slots = topk_ids.numel()
    max_tiles = slots // tile_rows + min(experts, slots)
    slot, row = (topk_ids.new_empty(slots) for _ in range(2))
    tiles = topk_ids.new_empty(max_tiles, 4)
    kernel[1, MAX_EXPERTS](topk_ids, slots, experts, tile_rows, max_tiles, slot, row, tiles)
    return Routes(slot, row, tiles)
