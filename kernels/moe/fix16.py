"""One token: both products in one kernel, which loads w2 while its blocks wait for h."""

from functools import cache

import torch

from workbench import cuda

params = cuda.params(warps=8, up_stages=3, split=0, cooperative=1)
MAX_TOPK = 16
SHARED_BYTES = (227 << 10) - 2048  # without the static shared memory


def declare(up: bool, down: bool) -> cuda.Kernel:
    defines = {"groups": 1, "warps": params["warps"], "up": up, "down": down}
    cooperative = up and down and bool(params["cooperative"])
    return cuda.kernel("fix16.cu", "experts", defines=defines, cooperative=cooperative)


kernels = [declare(True, False), declare(False, True)] if params["split"] else [declare(True, True)]


@cache
def barrier_counter(device: torch.device) -> torch.Tensor:
    """Counter of the grid barrier. Each call flips its top bit."""
    return torch.zeros(1, dtype=torch.int32, device=device)


def run(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
) -> torch.Tensor:
    tokens, hidden = x.shape
    _, _, intermediate = w2.shape
    topk = topk_ids.shape[1]
    if tokens > 1 or topk > MAX_TOPK or hidden % 128 or intermediate % 128:
        raise NotImplementedError("more than a token or 16 slots, or sizes not multiples of 128")
    pair_bytes, row_bytes = 4 * hidden, 2 * topk * intermediate  # weights per step
    buffer_bytes = (SHARED_BYTES - 2 * hidden - row_bytes) // params["warps"] // 128 * 128
    if buffer_bytes < max(pair_bytes, row_bytes):
        raise NotImplementedError("rows of weights do not fit into a warp's shared memory")
    h, out = x.new_empty(topk, intermediate), torch.empty_like(x)
    grid = torch.cuda.get_device_properties(x.device).multi_processor_count
    shared_bytes = params["warps"] * buffer_bytes + 2 * hidden + row_bytes
    stages = min(params["up_stages"], buffer_bytes // pair_bytes)
    sizes = topk, hidden, intermediate, buffer_bytes, stages
    for kernel in kernels:
        kernel[grid, 32 * params["warps"], shared_bytes](
            x, topk_ids, topk_weights, w13, w2, h, out, barrier_counter(x.device), *sizes
        )
    return out
