"""Dispatcher by length and number of rows: fused.py, cluster.py or split.py."""

import torch

from workbench import cuda

fused_up_to = {  # elements of a row
    2048: cuda.variant("fused", warps=2),
    16384: cuda.variant("fused", warps=8),
    32768: cuda.variant("fused", warps=16),
}
cluster = cuda.variant("cluster")
split = cuda.variant("split")


def run(x: torch.Tensor) -> torch.Tensor:
    rows, cols = x.shape
    for max_cols, fused in fused_up_to.items():
        if cols <= max_cols:
            return fused.run(x)
    # At 131072 columns, split is faster with 32 rows and cluster with 256. The limit lies between.
    use_cluster = rows >= 128 and cols <= 131072 and cols * x.element_size() % 16 == 0
    return (cluster if use_cluster else split).run(x)
