# mypy: ignore-errors
"""Its own formulas."""

import torch


@torch.no_grad()
def run(x, w, dy):
    y = (x * w).sigmoid()
    d = dy * y * (1 - y)
    return {"dx": d * w, "dw": (d * x).sum(0)}
