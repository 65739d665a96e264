"""PyTorch: a loop over the experts, each for all tokens, with weight 0 unless the token chose it.

A loop over the chosen tokens has to wait for their number, which a CUDA graph cannot do.
"""

import torch

MAX_EXPERTS = 64  # an expert takes ten launches; ncu would need an hour to profile more


def run(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
) -> torch.Tensor:
    if len(w13) > MAX_EXPERTS:
        raise NotImplementedError(f"at most {MAX_EXPERTS} experts")
    out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for expert in range(len(w13)):
        weight = (topk_weights * (topk_ids == expert)).sum(-1, keepdim=True)
        gate, up = (x @ w13[expert].T).chunk(2, -1)
        out += weight * ((torch.nn.functional.silu(gate) * up) @ w2[expert].T)
    return out.to(x.dtype)
