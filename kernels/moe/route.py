"""Which rows go to which expert, found on the GPU: a part of other variants."""

from typing import NamedTuple

import torch

from workbench import cuda

MOST_EXPERTS = 1024
kernel = cuda.kernel("route.cu", "route")


class Routes(NamedTuple):
    """``order``: [rows], the row at a place; ``place``: [rows], the place of a row; ``tiles``:
    [most tiles, 4], as route.cu has them.
    """

    order: torch.Tensor
    place: torch.Tensor
    tiles: torch.Tensor


def run(topk_ids: torch.Tensor, experts: int, tile_rows: int) -> Routes:
    if experts > MOST_EXPERTS:
        raise NotImplementedError(f"up to {MOST_EXPERTS} experts")
    rows = topk_ids.numel()
    most = rows // tile_rows + min(experts, rows)
    order, place = (topk_ids.new_empty(rows) for _ in range(2))
    tiles = topk_ids.new_empty(most, 4)
    kernel[1, MOST_EXPERTS](topk_ids, rows, experts, tile_rows, most, order, place, tiles)
    return Routes(order, place, tiles)
