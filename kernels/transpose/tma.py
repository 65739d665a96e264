"""Tiles loaded and stored by TMA."""

import torch

from workbench import cuda

TILE_VECTORS = 16  # 16-byte vectors in a row and in a column of a tile
params = cuda.params(swizzle=1)


def shared_bytes(size: int) -> int:
    return 2 * (TILE_VECTORS * 16 // size) * TILE_VECTORS * 16 + 2 * 1024


kernels = {
    size: cuda.kernel(
        "tma.cu", "transpose", defines={"size": size, "shared_bytes": shared_bytes(size), **params}
    )
    for size in (2, 4)
}


def run(x: torch.Tensor) -> torch.Tensor:
    rows, cols = x.shape
    size = x.element_size()
    vector_size = 16 // size
    if rows % vector_size or cols % vector_size:
        raise NotImplementedError("rows and columns must be multiples of 16 bytes")
    out, tile = x.new_empty(cols, rows), TILE_VECTORS * vector_size
    swizzled = bool(params["swizzle"])
    box = (tile, 128 // size if swizzled else tile)
    maps = [cuda.tensor_map(matrix, box, swizzled=swizzled) for matrix in (x, out)]
    kernels[size][(-(-cols // tile), -(-rows // tile)), 256, shared_bytes(size)](*maps)
    return out
