"""One token: one kernel, whose second product is dealt to the blocks that have room."""

from functools import cache

import torch

from workbench import cuda

params = cuda.params(leave=1)
STAGES = 4
DEALT = 2  # columns of the output in a stage
# Experts of a token, hidden and intermediate size: DeepSeek-V2-Lite, Qwen3-30B-A3B, a small one.
SIZES = ((6, 2048, 1408), (8, 2048, 768), (2, 512, 384))
ROWS = 4  # of the gate in a stage
WARPS = 2 * ROWS
BESIDE = 1 << 10  # bytes of shared memory, for what is neither weights nor h


def stage_bytes(topk: int, hidden: int, intermediate: int) -> int:
    return max(4 * ROWS * hidden, 2 * topk * DEALT * intermediate)


def declare(*sizes: int) -> cuda.Kernel:
    topk, hidden, intermediate = sizes
    defines = {"topk": topk, "hidden": hidden, "intermediate": intermediate, "rows": ROWS}
    defines |= {"stages": STAGES, "dealt": DEALT, **params}
    defines |= {"slots": stage_bytes(*sizes) // (2 * WARPS * intermediate)}
    return cuda.kernel("fix24.cu", "experts", defines=defines, cooperative=True)


kernels = {sizes: declare(*sizes) for sizes in SIZES}


@cache
def state(device: torch.device, topk: int, intermediate: int) -> torch.Tensor:
    """What the blocks of a call, and calls that follow each other, know each other by."""
    return torch.zeros(32 + 2 * topk * intermediate, dtype=torch.int32, device=device)


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
    grid = torch.cuda.get_device_properties(x.device).multi_processor_count
    if topk * intermediate < grid * ROWS:
        raise NotImplementedError(f"a GPU of {grid} SMs")
    out = torch.empty_like(x)
    shared_bytes = STAGES * stage_bytes(*sizes) + 2 * topk * intermediate + BESIDE
    kernels[sizes][grid, 32 * (WARPS + 3), shared_bytes](
        x, topk_ids, topk_weights, w13, w2, out, state(x.device, topk, intermediate)
    )
    return out
