"""Name the namespace of the operator, one for each build, and load its extension."""

from pathlib import Path

import torch

if (library := Path(__file__).with_name("IDENTITY.so")).is_file():
    torch.ops.load_library(library)
ops = torch.ops.IDENTITY


def add_op_namespace_prefix(op_name: str) -> str:
    return f"IDENTITY::{op_name}"
