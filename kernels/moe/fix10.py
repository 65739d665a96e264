"""Both products in one persistent kernel."""

import torch

from workbench import cuda

params = cuda.params(cluster=1, lag=2, pending=1, group=0, tanh=0)
STAGES, TOKENS = 4, 128  # maximum tokens per tile
SHARED_BYTES = STAGES * (2 * 128 + TOKENS) * 128 + 2 * TOKENS * 128 + 3072
MAX_TOPK = 8
sorting = cuda.variant("dispatch")
defines = {"grain": 16, "stages": STAGES, "shared_bytes": SHARED_BYTES, **params}
products = cuda.kernel("fix10.cu", "products", defines=defines)
weigh = {
    topk: cuda.kernel("weigh.cu", "weigh", defines={"topk": topk})
    for topk in range(1, MAX_TOPK + 1)
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
    slots = tokens * topk
    if hidden % 128 or intermediate % 128 or topk > MAX_TOPK:
        raise NotImplementedError("only multiples of 128, and at most 8 experts per token")
    first_row, token, row, done = sorting.run(topk_ids, experts)

    box = (1, 2 // params["cluster"], 128, 64)  # of weights, that one block copies
    h, projected = x.new_empty(slots, intermediate), x.new_empty(slots, hidden)
    maps = (
        cuda.tensor_map(w13.view(experts, 2, intermediate, hidden), box),
        cuda.tensor_map(w2.view(experts, hidden // 128, 128, intermediate), box),
        cuda.tensor_map(h, (32, 64)),
    )
    blocks = torch.cuda.get_device_properties(x.device).multi_processor_count
    products[blocks, 384, SHARED_BYTES](
        *maps, x, token, first_row, done, h, projected, experts, hidden, intermediate
    )
    out = torch.empty_like(x)
    weigh[topk][tokens, hidden // 8](projected, row, topk_weights, out)
    return out
