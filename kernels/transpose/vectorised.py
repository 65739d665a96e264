"""16 bytes an access on both sides."""

import torch

from workbench import cuda

kernels = {
    size: cuda.kernel("vectorised.cu", "transpose", defines={"size": size}) for size in (2, 4)
}


def run(x: torch.Tensor) -> torch.Tensor:
    rows, cols = x.shape
    vector = 16 // x.element_size()
    if rows % vector or cols % vector:
        raise NotImplementedError("rows and columns of whole pieces of 16 bytes")
    out, tile = x.new_empty(cols, rows), 16 * vector
    kernels[x.element_size()][(-(-cols // tile), -(-rows // tile)), 256](x, out, rows, cols)
    return out
