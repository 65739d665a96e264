"""Tiles fetched and written by the copy engine (TMA)."""

import torch

from workbench import cuda

PIECES = 16  # of 16 bytes along either side of a tile
params = cuda.params(swizzle=1)


def shared_bytes(size: int) -> int:
    return 2 * (PIECES * 16 // size) * PIECES * 16 + 2 * 1024


kernels = {
    size: cuda.kernel(
        "tma.cu", "transpose", defines={"size": size, "shared_bytes": shared_bytes(size), **params}
    )
    for size in (2, 4)
}


def run(x: torch.Tensor) -> torch.Tensor:
    rows, cols = x.shape
    size = x.element_size()
    vector = 16 // size
    if rows % vector or cols % vector:
        raise NotImplementedError("rows and columns of whole pieces of 16 bytes")
    out, tile = x.new_empty(cols, rows), PIECES * vector
    swizzled = bool(params["swizzle"])
    box = (tile, 128 // size if swizzled else tile)
    maps = [cuda.tensor_map(matrix, box, swizzled=swizzled) for matrix in (x, out)]
    kernels[size][(-(-cols // tile), -(-rows // tile)), 256, shared_bytes(size)](*maps)
    return out
