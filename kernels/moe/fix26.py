"""Few tokens of an expert past its weights, unless some experts have many: the device decides."""

import torch

from workbench import cuda

FEW = 13  # tokens of an expert on average, up to which its weights come to its tokens
# By experts of a token, hidden and intermediate size: groups of eight tokens at most, as in fix19.
SIZES = {(6, 2048, 1408): 3, (8, 2048, 768): 2, (2, 512, 384): 3}
MOST_EXPERTS, MOST_SLOTS = 256, 1024
WARPS, BESIDE = 8, 4  # that multiply, and the others
GROUPS = {1: (3, 4), 2: (8, 4), 3: (13, 3)}  # tokens of an expert on average, and stages
SHARED_BYTES = 227 << 10
others = cuda.variant("fix25")
weigh = {topk: cuda.kernel("weigh.cu", "weigh", defines={"topk": topk}) for topk, _, _ in SIZES}


def declare(sizes: tuple[int, int, int], groups: int) -> cuda.Kernel:
    defines = dict(zip(("topk", "hidden", "intermediate"), sizes, strict=True))
    defines |= {"keep": 1, "take": 4, "up_static": 90, "down_static": 75}
    defines |= {"groups": groups, "stages": GROUPS[groups][1], "warps": WARPS}
    defines |= {"tile_stages": 4, "grain": 16, "cluster": 1, "lag": 0, "pending": 1}  # as fix20
    defines |= {"group": 0, "tanh": 0, "shared_bytes": SHARED_BYTES}
    return cuda.kernel("fix26.cu", "experts", defines=defines, cooperative=True)


products = {
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
    topk = topk_ids.shape[1]
    sizes = (topk, hidden, intermediate)
    slots, mean = tokens * topk, tokens * topk / experts
    groups = next((n for n, (most, _) in GROUPS.items() if mean <= most), max(GROUPS))
    groups = min(groups, SIZES.get(sizes, 0))
    many = slots > MOST_SLOTS or mean > FEW or experts > MOST_EXPERTS
    if many or not groups or tokens <= 16 * groups:  # no expert's weights more than twice
        return others.run(x, topk_ids, topk_weights, w13, w2)
    blocks = torch.cuda.get_device_properties(x.device).multi_processor_count
    slots_up = -(-slots // 32) * 32  # so that no line of memory is of two blocks
    each = slots_up + (experts + 32) // 32 * 32
    place, order = topk_ids.new_empty(slots), topk_ids.new_empty(blocks, each)
    h, rows = x.new_empty(slots, intermediate), x.new_empty(slots, hidden)
    state = topk_ids.new_zeros(2 + experts + slots)
    part = (1, 2, 128, 64)  # of a tile of weights that a block copies
    maps = (
        cuda.tensor_map(w13.view(experts, 2, intermediate, hidden), part),
        cuda.tensor_map(w2.view(experts, hidden // 128, 128, intermediate), part),
        cuda.tensor_map(h, (32, 64)),
    )
    products[sizes][groups][blocks, 32 * (WARPS + BESIDE), SHARED_BYTES](
        *maps, x, topk_ids, w13, w2, place, h, rows, state, order, each, slots_up, slots, experts
    )
    out = torch.empty_like(x)
    weigh[topk][tokens, hidden // 8](rows, place, topk_weights, out)
    return out
