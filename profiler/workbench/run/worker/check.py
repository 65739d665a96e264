"""Correctness against the float64 reference. Runs in the worker."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from workbench.study.model import Tolerance, tolerance_at
from workbench.words import CheckResult

GUARD_BYTES = 64 * 1024
POISON = 0xFF  # every float format reads all-ones as NaN
POISON_BLOCKS = 8
DRAWS = 2


def guarded(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A copy with NaN bytes on both sides, and the whole buffer.

    A read past either end brings NaN into the result; a write changes the buffer.
    """
    size = tensor.numel() * tensor.element_size()
    buffer = torch.full((size + 2 * GUARD_BYTES,), POISON, dtype=torch.uint8, device=tensor.device)
    inside = buffer[GUARD_BYTES : GUARD_BYTES + size].view(tensor.dtype).view(tensor.shape)
    inside.copy_(tensor)
    return inside, buffer


def poison_free_memory(size: int) -> None:
    """Fill free blocks of ``size`` bytes with NaN, so that an output nobody wrote shows."""
    blocks = [
        torch.full((size,), POISON, dtype=torch.uint8, device="cuda") for _ in range(POISON_BLOCKS)
    ]
    del blocks


def compare(out: Any, expected: torch.Tensor, bound: Tolerance) -> tuple[float, float, str]:
    """Max absolute error, error relative in norm, and why it is wrong ("" when it is not)."""
    if not isinstance(out, torch.Tensor):
        return math.nan, math.nan, f"run() returned {type(out).__name__}, not a tensor"
    if out.shape != expected.shape:
        return math.nan, math.nan, f"shape {tuple(out.shape)}, expected {tuple(expected.shape)}"
    not_finite = int((~torch.isfinite(out)).sum())
    if not_finite:
        where = (~torch.isfinite(out)).nonzero()[0].tolist()
        return (
            math.nan,
            math.nan,
            (
                f"{not_finite} of {out.numel()} outputs are NaN or infinite, the first at {where}: "
                "not written, or read out of bounds"
            ),
        )
    error = out.double() - expected
    absolute = float(error.abs().max())
    relative = float(error.norm() / expected.norm())
    if absolute > bound.absolute or relative > bound.relative:
        where = [int(i) for i in torch.unravel_index(error.abs().argmax(), error.shape)]
        return (
            absolute,
            relative,
            (
                f"max error {absolute:.3g} (allowed {bound.absolute:.3g}), relative {relative:.3g} "
                f"(allowed {bound.relative:.3g}), worst at {where}"
            ),
        )
    return absolute, relative, ""


def check_once(study: ModuleType, run: Callable[..., Any], shape: Any) -> tuple[float, float, str]:
    generator = torch.Generator("cuda").manual_seed(secrets.randbits(48))
    drawn = study.inputs(shape, generator)
    expected = study.reference(**drawn)
    inputs, buffers = dict(drawn), {}
    for name, value in drawn.items():
        if isinstance(value, torch.Tensor):
            inputs[name], buffers[name] = guarded(value)
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    first = next(value for value in drawn.values() if isinstance(value, torch.Tensor))
    poison_free_memory(expected.numel() * first.element_size())
    out = run(**inputs)
    torch.cuda.synchronize()
    absolute, relative, why = compare(out, expected, tolerance_at(study.tolerance, shape))
    for name, buffer in buffers.items():
        if not torch.equal(buffer, before[name]):
            changed = (buffer != before[name]).nonzero()
            inside = GUARD_BYTES <= int(changed[0]) < buffer.numel() - GUARD_BYTES
            why = why or f"{'changes its input' if inside else 'writes out of bounds of'} '{name}'"
    return absolute, relative, why


@dataclass(frozen=True)
class CheckOutcome:
    """How a variant stood; errors are None where there is no finite one."""

    status: CheckResult
    why: str = ""
    max_abs: float | None = None
    relative: float | None = None


def check_variant(study: ModuleType, run: Callable[..., Any], shape: Any) -> CheckOutcome:
    """The worst of a few fresh draws: correct, wrong or unsupported."""
    worst = (0.0, 0.0)
    for _ in range(DRAWS):
        try:
            absolute, relative, why = check_once(study, run, shape)
        except NotImplementedError as error:
            return CheckOutcome(CheckResult.UNSUPPORTED, str(error))
        if why:
            return CheckOutcome(CheckResult.WRONG, why, finite(absolute), finite(relative))
        worst = (max(worst[0], absolute), max(worst[1], relative))
    return CheckOutcome(CheckResult.CORRECT, "", finite(worst[0]), finite(worst[1]))


def finite(number: float) -> float | None:
    """JSON has no other numbers."""
    return number if math.isfinite(number) else None
