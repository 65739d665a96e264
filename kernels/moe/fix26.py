"""Few tokens of an expert past its weights, unless some experts have many: the device decides."""

import torch

from workbench import cuda

FEW = 13  # tokens of an expert on average, up to which its weights come to its tokens
# By experts of a token, hidden and intermediate size: groups of eight tokens at most, as in fix19.
SIZES = {(6, 2048, 1408): 3, (8, 2048, 768): 2, (2, 512, 384): 3}
MOST_EXPERTS, MOST_SLOTS = 256, 1024
WARPS, BESIDE = 8, 3  # that multiply, and the others
GROUPS = {1: (3, 4), 2: (8, 4), 3: (13, 3)}  # tokens of an expert on average, and stages
SHARED_BYTES = 227 << 10
STAGES, TOKENS = 4, 128  # of a tile, see fix20
TILES_BYTES = STAGES * (2 * 128 + TOKENS) * 128 + 2 * TOKENS * 128 + 3072
others = cuda.variant("fix25")
weigh = {topk: cuda.kernel("weigh.cu", "weigh", defines={"topk": topk}) for topk, _, _ in SIZES}


def declare(sizes: tuple[int, int, int], groups: int) -> cuda.Kernel:
    defines = dict(zip(("topk", "hidden", "intermediate"), sizes, strict=True))
    defines |= {"keep": 1, "take": 4, "up_static": 90, "down_static": 75}
    defines |= {"groups": groups, "stages": GROUPS[groups][1], "warps": WARPS}
    defines |= {"shared_bytes": SHARED_BYTES}
    return cuda.kernel("fix26.cu", "experts", defines=defines, cooperative=True)


few = {
    sizes: {groups: declare(sizes, groups) for groups in range(1, most + 1)}
    for sizes, most in SIZES.items()
}
defines = {"grain": 16, "stages": STAGES, "shared_bytes": TILES_BYTES}
defines |= {"cluster": 1, "lag": 0, "pending": 1, "group": 0, "tanh": 0}
tiles = cuda.kernel("fix20.cu", "products", defines=defines)


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
    if many or tokens <= 8 * groups or not groups:  # no expert can have too many
        return others.run(x, topk_ids, topk_weights, w13, w2)
    blocks = torch.cuda.get_device_properties(x.device).multi_processor_count
    place, token = topk_ids.new_empty(slots), topk_ids.new_empty(slots)
    h, rows = x.new_empty(slots, intermediate), x.new_empty(slots, hidden)
    zeros = topk_ids.new_zeros(2 + experts + slots + 2 * (experts + 1))
    state, first, done = zeros.split((2 + experts + slots, experts + 1, experts + 1))
    few[sizes][groups][blocks, 32 * (WARPS + BESIDE), SHARED_BYTES](
        x, topk_ids, w13, w2, place, h, rows, state, first, token, slots, experts
    )
    part = (1, 2, 128, 64)  # of a tile of weights that a block copies
    maps = (
        cuda.tensor_map(w13.view(experts, 2, intermediate, hidden), part),
        cuda.tensor_map(w2.view(experts, hidden // 128, 128, intermediate), part),
        cuda.tensor_map(h, (32, 64)),
    )
    tiles[blocks, 384, TILES_BYTES](
        *maps, x, token, first, done, h, rows, experts, hidden, intermediate
    )
    out = torch.empty_like(x)
    weigh[topk][tokens, hidden // 8](rows, place, topk_weights, out)
    return out
