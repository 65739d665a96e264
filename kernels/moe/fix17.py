"""One token: one kernel, for sizes that it was compiled for."""

from functools import cache

import torch

from workbench import cuda

params = cuda.params(warps=8, up_stages=3)
SHARED_BYTES = (227 << 10) - 2048  # and what the kernel declares itself
# Experts of a token, hidden and intermediate size: DeepSeek-V2-Lite, Qwen3-30B-A3B, a small one.
SIZES = ((6, 2048, 1408), (8, 2048, 768), (2, 512, 384))


def ring_bytes(topk: int, hidden: int, intermediate: int) -> int:
    """Of a warp, beside x and h."""
    return (SHARED_BYTES - 2 * hidden - 2 * topk * intermediate) // params["warps"] // 128 * 128


def declare(topk: int, hidden: int, intermediate: int) -> cuda.Kernel:
    ring = ring_bytes(topk, hidden, intermediate)
    defines = {"groups": 1, "warps": params["warps"], "topk": topk, "hidden": hidden}
    defines |= {"intermediate": intermediate, "ring_bytes": ring}
    defines |= {"up_stages": min(params["up_stages"], ring // (4 * hidden))}
    return cuda.kernel("fix17.cu", "experts", defines=defines, cooperative=True)


kernels = {sizes: declare(*sizes) for sizes in SIZES}


@cache
def turn(device: torch.device) -> torch.Tensor:
    """What blocks count themselves by: each call flips its upper bit."""
    return torch.zeros(1, dtype=torch.int32, device=device)


def run(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
) -> torch.Tensor:
    tokens, hidden = x.shape
    sizes = topk, hidden, intermediate = topk_ids.shape[1], hidden, w2.shape[2]
    if tokens > 1 or sizes not in kernels:
        raise NotImplementedError("one token, and sizes that it was compiled for")
    h, out = x.new_empty(topk, intermediate), torch.empty_like(x)
    grid = torch.cuda.get_device_properties(x.device).multi_processor_count
    shared_bytes = params["warps"] * ring_bytes(*sizes) + 2 * hidden + 2 * topk * intermediate
    kernels[sizes][grid, 32 * params["warps"], shared_bytes](
        x, topk_ids, topk_weights, w13, w2, h, out, turn(x.device)
    )
    return out
