"""Name the namespace of the operator: one for each build."""

import torch

ops = torch.ops.IDENTITY


def add_op_namespace_prefix(op_name: str) -> str:
    return f"IDENTITY::{op_name}"
