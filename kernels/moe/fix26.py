"""As fix25, but for few tokens per expert a kernel chooses between fix19 and tiles of fix20."""

import torch

from workbench import cuda

MAX_MEAN = 13  # average number of tokens per expert
# Maximum groups of eight tokens, by experts per token, hidden and intermediate size; as in fix19.
SIZES = {(6, 2048, 1408): 3, (8, 2048, 768): 2, (2, 512, 384): 3}
MAX_EXPERTS, MAX_SLOTS = 256, 1024
CONSUMER_WARPS, OTHER_WARPS = 8, 4
GROUPS = {1: (3, 4), 2: (8, 4), 3: (13, 3)}  # maximum average tokens per expert, and stages
SHARED_BYTES = 227 << 10
others = cuda.variant("fix25")
weigh = {topk: cuda.kernel("weigh.cu", "weigh", defines={"topk": topk}) for topk, _, _ in SIZES}


def declare(sizes: tuple[int, int, int], groups: int) -> cuda.Kernel:
    defines = dict(zip(("topk", "hidden", "intermediate"), sizes, strict=True))
    defines |= {"keep": 1, "take": 4, "up_static": 90, "down_static": 75}
    defines |= {"groups": groups, "stages": GROUPS[groups][1], "warps": CONSUMER_WARPS}
    defines |= {"tile_stages": 4, "grain": 16, "cluster": 1, "lag": 0, "pending": 1}  # as fix20
    defines |= {"group": 0, "tanh": 0, "shared_bytes": SHARED_BYTES}
    return cuda.kernel("fix26.cu", "experts", defines=defines, cooperative=True)


products = {
    sizes: {groups: declare(sizes, groups) for groups in range(1, max_groups + 1)}
    for sizes, max_groups in SIZES.items()
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
    topk = topk_ids.shape[1]
    sizes = (topk, hidden, intermediate)
    slots, mean = tokens * topk, tokens * topk / experts
    groups = next((n for n, (limit, _) in GROUPS.items() if mean <= limit), max(GROUPS))
    groups = min(groups, SIZES.get(sizes, 0))
    too_many = slots > MAX_SLOTS or mean > MAX_MEAN or experts > MAX_EXPERTS
    # Up to 16 tokens per group, no expert's weights are multiplied more than twice, even by fix19.
    if too_many or not groups or tokens <= 16 * groups:
        return others.run(x, topk_ids, topk_weights, w13, w2)
    blocks = torch.cuda.get_device_properties(x.device).multi_processor_count
    padded_slots = -(-slots // 32) * 32  # whole 128-byte lines, so that blocks share none
    stride = padded_slots + (experts + 32) // 32 * 32
    row, order = topk_ids.new_empty(slots), topk_ids.new_empty(blocks, stride)
    h, projected = x.new_empty(slots, intermediate), x.new_empty(slots, hidden)
    state = topk_ids.new_zeros(2 + experts + slots)
    counts = stride, padded_slots, slots, experts
    box = (1, 2, 128, 64)  # of weights
    maps = (
        cuda.tensor_map(w13.view(experts, 2, intermediate, hidden), box),
        cuda.tensor_map(w2.view(experts, hidden // 128, 128, intermediate), box),
        cuda.tensor_map(h, (32, 64)),
    )
    products[sizes][groups][blocks, 32 * (CONSUMER_WARPS + OTHER_WARPS), SHARED_BYTES](
        *maps, x, topk_ids, w13, w2, row, h, projected, state, order, *counts
    )
    out = torch.empty_like(x)
    weigh[topk][tokens, hidden // 8](projected, row, topk_weights, out)
    return out
