"""PyTorch: slots sorted by expert, and a grouped GEMM before and after the activation."""

import torch


def run(
    x: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13: torch.Tensor,
    w2: torch.Tensor,
) -> torch.Tensor:
    tokens, topk = topk_ids.shape
    experts = torch.arange(len(w13), dtype=topk_ids.dtype, device=x.device)
    ids, slot = topk_ids.flatten().sort()
    ends = torch.searchsorted(ids, experts, right=True, out_int32=True)
    gate_up = torch._grouped_mm(x[slot // topk], w13.transpose(-2, -1), offs=ends)
    gate, up = gate_up.chunk(2, -1)
    activated = torch.nn.functional.silu(gate) * up
    projected = torch._grouped_mm(activated, w2.transpose(-2, -1), offs=ends)
    row = torch.empty_like(slot).scatter_(0, slot, torch.arange(len(slot), device=x.device))
    weighted = projected[row].view(tokens, topk, -1) * topk_weights[..., None]
    return weighted.sum(1).to(x.dtype)
