"""Settings of torch that hold for the whole process, so that a variant may not change them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch


@dataclass(frozen=True)
class Setting:
    """One of torch's, for the whole process."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], None]


def _attribute(path: str) -> Setting:
    """A flag that is an attribute: ``torch.backends.cudnn.enabled``."""
    owner, _, name = path.rpartition(".")
    parts = owner.split(".")

    def find() -> Any:
        found: Any = import_module(parts[0])
        for part in parts[1:]:
            found = getattr(found, part)
        return found

    def read() -> Any:
        try:
            return getattr(find(), name)
        except RuntimeError as error:  # a newer way to set it was used, which the older cannot read
            return type(error).__name__

    return Setting(path, read, lambda value: setattr(find(), name, value))


def _leave_function_modes(before: int) -> None:
    while torch._C._len_torch_function_stack() > before:
        torch._C._pop_torch_function_stack()


def _leave_dispatch_modes(before: int) -> None:
    while torch._C._len_torch_dispatch_stack() > before:
        torch._C._pop_torch_dispatch_stack()


SETTINGS = (
    *map(
        _attribute,
        (
            "torch.backends.cudnn.enabled",
            "torch.backends.cudnn.benchmark",
            "torch.backends.cudnn.deterministic",
            "torch.backends.cudnn.allow_tf32",
            "torch.backends.cuda.matmul.allow_tf32",
            "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
            "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
        ),
    ),
    Setting(
        "torch.backends.cuda.flash_sdp_enabled",
        torch.backends.cuda.flash_sdp_enabled,
        torch.backends.cuda.enable_flash_sdp,
    ),
    Setting(
        "torch.backends.cuda.mem_efficient_sdp_enabled",
        torch.backends.cuda.mem_efficient_sdp_enabled,
        torch.backends.cuda.enable_mem_efficient_sdp,
    ),
    Setting(
        "torch.backends.cuda.math_sdp_enabled",
        torch.backends.cuda.math_sdp_enabled,
        torch.backends.cuda.enable_math_sdp,
    ),
    Setting(
        "torch.backends.cuda.cudnn_sdp_enabled",
        torch.backends.cuda.cudnn_sdp_enabled,
        torch.backends.cuda.enable_cudnn_sdp,
    ),
    Setting(
        "torch.get_float32_matmul_precision",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    Setting("torch.get_default_dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting(
        "torch.are_deterministic_algorithms_enabled",
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    Setting("torch.is_grad_enabled", torch.is_grad_enabled, torch._C._set_grad_enabled),
    Setting(
        "torch's stack of function modes",
        torch._C._len_torch_function_stack,
        _leave_function_modes,
    ),
    Setting(
        "torch's stack of dispatch modes",
        torch._C._len_torch_dispatch_stack,
        _leave_dispatch_modes,
    ),
)
