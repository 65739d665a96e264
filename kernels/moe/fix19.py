"""Few tokens per expert: one kernel keeps the tokens in registers and streams the weights."""

import torch

from workbench import cuda

params = cuda.params(keep=1, take=4, up_static=90, down_static=75)
# (topk, hidden, intermediate) of DeepSeek-V2-Lite, Qwen3-30B-A3B and a small test shape: maximum
# number of groups of eight tokens.
SIZES = {(6, 2048, 1408): 3, (8, 2048, 768): 2, (2, 512, 384): 3}
MAX_EXPERTS, MAX_SLOTS = 256, 1024
WARPS, OTHER_WARPS = 8, 3  # math warps; load and epilogue warps
SHARED_BYTES = 227 << 10
WEIGH = {topk: cuda.kernel("weigh.cu", "weigh", defines={"topk": topk}) for topk, _, _ in SIZES}
# By groups of eight tokens per block: maximum of mean tokens per expert, stages of weights.
GROUPS = {1: (3, 4), 2: (8, 4), 3: (13, 3)}


def declare(sizes: tuple[int, int, int], groups: int) -> cuda.Kernel:
    defines = dict(zip(("topk", "hidden", "intermediate"), sizes, strict=True)) | params
    defines |= {"groups": groups, "stages": GROUPS[groups][1], "warps": WARPS}
    defines |= {"shared_bytes": SHARED_BYTES}
    return cuda.kernel("fix19.cu", "experts", defines=defines, cooperative=True)


kernels = {
    sizes: {groups: declare(sizes, groups) for groups in range(1, most + 1)}
    for sizes, most in SIZES.items()
}


def run(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
) -> torch.Tensor:
    tokens, hidden = x.shape
    experts, _, intermediate = w2.shape
    sizes = topk, hidden, intermediate = topk_ids.shape[1], hidden, w2.shape[2]
    slots = tokens * topk
    if sizes not in kernels or experts > MAX_EXPERTS or slots > MAX_SLOTS:
        raise NotImplementedError("over 1024 slots or 256 experts, or sizes that are not compiled")
    tokens_per_expert = slots / experts
    groups = next((n for n, (most, _) in GROUPS.items() if tokens_per_expert <= most), max(GROUPS))
    groups = min(groups, SIZES[sizes])
    grid = torch.cuda.get_device_properties(x.device).multi_processor_count
    place, h = topk_ids.new_empty(slots), x.new_empty(slots, intermediate)
    rows, out = x.new_empty(slots, hidden), torch.empty_like(x)
    state = topk_ids.new_zeros(2 + experts + slots)
    kernels[sizes][groups][grid, 32 * (WARPS + OTHER_WARPS), SHARED_BYTES](
        x, topk_ids, w13, w2, place, h, rows, state, slots, experts
    )
    WEIGH[topk][tokens, hidden // 8](rows, place, topk_weights, out)
    return out
