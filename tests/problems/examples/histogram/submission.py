import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    values, counts = data
    counts.zero_()
    counts.scatter_add_(0, values.long(), torch.ones_like(values, dtype=torch.int64))
    return counts
