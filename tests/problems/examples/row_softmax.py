"""Softmax of every row, by torch operations one after the other."""

import torch


def softmax(x):
    largest = x.max(dim=-1, keepdim=True).values
    powers = torch.exp(x - largest)
    return powers / powers.sum(dim=-1, keepdim=True)


def inputs(rows=4096, cols=8192):
    return {"x": torch.randn(rows, cols, device="cuda")}
