"""The sum of every row, a block a row."""

import torch

from workbench import cuda

params = cuda.params(fault="none")
fault = params["fault"]
ROWS = 7  # of a block: 1171 blocks for 132 * 8 places
kernel = cuda.kernel(
    "kernel.cu",
    "sums",
    defines={} if fault == "none" else {fault: ROWS if fault == "last_wave" else 1},
)


def run(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    out = x.new_zeros(rows) if fault == "atomics" else x.new_empty(rows)
    kernel[-(-rows // ROWS) if fault == "last_wave" else rows, 256](x, out, rows, columns)
    return out
