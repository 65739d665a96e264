"""Correctness against the float64 reference. Runs in the worker."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch

from workbench.run.worker.output import refuse_output
from workbench.run.worker.timing.surroundings import is_dense
from workbench.study.model import Tolerance, tolerance_at
from workbench.words import CheckResult

Run = Callable[..., Any]
Kind = Callable[[dict[str, Any], torch.Generator], dict[str, Any]]  # makes plain inputs adversarial
GUARD_BYTES = 64 * 1024
POISON = 0xFF  # every float format reads all-ones as NaN
POISON_BLOCKS = 8


def guarded(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A copy with NaN bytes on both sides, laid out as it is, and the whole buffer.

    A read past either end brings NaN into the result; a write changes the buffer.
    """
    size = tensor.numel() * tensor.element_size()
    buffer = torch.full((size + 2 * GUARD_BYTES,), POISON, dtype=torch.uint8, device=tensor.device)
    flat = buffer[GUARD_BYTES : GUARD_BYTES + size].view(tensor.dtype)
    dense = is_dense(tensor)
    inside = flat.as_strided(tensor.shape, tensor.stride()) if dense else flat.view(tensor.shape)
    inside.copy_(tensor)
    return inside, buffer


def poison_free_memory(size: int) -> None:
    """Fill free blocks of ``size`` bytes with NaN, so that an output nobody wrote shows."""
    blocks = [
        torch.full((size,), POISON, dtype=torch.uint8, device="cuda") for _ in range(POISON_BLOCKS)
    ]
    del blocks


def compare(
    out: torch.Tensor, expected: torch.Tensor, bound: Tolerance
) -> tuple[float, float, str]:
    """Max absolute error, error relative in norm, and why it is wrong ("" when it is not)."""
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


@dataclass(frozen=True)
class Checked:
    """One call. Errors are nan where there is none; ``reference`` is the primary one's relative."""

    absolute: float
    relative: float
    why: str
    varies: bool = False
    reference: float | None = None

    @property
    def times_reference(self) -> float | None:
        """The error as a multiple of the primary reference's on the same inputs."""
        if self.reference is None or not math.isfinite(self.relative) or not self.reference:
            return None
        return self.relative / self.reference


def check_once(
    study: ModuleType, run: Run, shape: Any, kind: Kind | None = None, peer: Run | None = None
) -> Checked:
    """On fresh inputs. Nothing that could be copied is in memory while ``run`` works: the reference
    comes after.
    """
    generator = torch.Generator("cuda").manual_seed(secrets.randbits(48))
    drawn = study.inputs(shape, generator)
    if kind is not None:
        drawn = kind(drawn, generator)
    inputs, buffers = dict(drawn), {}
    for name, value in drawn.items():
        if isinstance(value, torch.Tensor):
            inputs[name], buffers[name] = guarded(value)
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    first = next((value for value in drawn.values() if isinstance(value, torch.Tensor)), None)
    if first is not None:
        poison_free_memory(first.numel() * first.element_size())
    out = run(**inputs)
    if refused := refuse_output(out, inputs):
        return Checked(math.nan, math.nan, refused)
    # On the stream of the call alone: what still runs on another one is not waited for.
    kept = out.clone()
    torch.cuda.synchronize()
    varies = not torch.equal(run(**inputs), kept)
    expected = study.reference(**drawn)
    absolute, relative, why = compare(kept, expected, tolerance_at(study.tolerance, shape))
    why = why or touched(buffers, before) or refused_by(study, drawn, kept)
    return Checked(absolute, relative, why, varies, error_of(peer, drawn, expected))


def touched(buffers: Mapping[str, torch.Tensor], before: Mapping[str, torch.Tensor]) -> str:
    """Which of the inputs, or of the memory around them, is not what it was, in words."""
    for name, buffer in buffers.items():
        if not torch.equal(buffer, before[name]):
            changed = (buffer != before[name]).nonzero()
            inside = GUARD_BYTES <= int(changed[0]) < buffer.numel() - GUARD_BYTES
            return f"{'changes its input' if inside else 'writes out of bounds of'} '{name}'"
    return ""


def refused_by(study: ModuleType, inputs: Mapping[str, Any], out: Any) -> str:
    """Why the study's own check, where it has one, refuses an output; "" where it does not."""
    accepts = getattr(study, "accepts", None)
    return str(accepts(inputs, out)) if accepts is not None else ""


def error_of(peer: Run | None, inputs: dict[str, Any], expected: torch.Tensor) -> float | None:
    """The relative error of the primary reference; None where it cannot be had."""
    if peer is None:
        return None
    try:
        out = peer(**inputs)
    except Exception:  # it does not support these inputs, for whatever reason
        return None
    if not isinstance(out, torch.Tensor) or out.shape != expected.shape:
        return None
    error = float((out.double() - expected).norm() / expected.norm())
    return error if math.isfinite(error) else None


@dataclass(frozen=True)
class CheckOutcome:
    """How a variant stood; errors are None where there is no finite one. See ``records.Check``."""

    status: CheckResult
    why: str = ""
    max_abs: float | None = None
    relative: float | None = None
    times_reference: float | None = None
    kind: str = ""
    varies: bool = False

    def with_(self, one: Checked, kind: str) -> CheckOutcome:
        """The worst of this and of one more call, on inputs of a ``kind``."""
        times = one.times_reference
        worse = times is not None and (self.times_reference or 0.0) < times
        return replace(
            self,
            max_abs=max(self.max_abs or 0.0, one.absolute),
            relative=max(self.relative or 0.0, one.relative),
            times_reference=times if worse else self.times_reference,
            kind=kind if worse else self.kind,
            varies=self.varies or one.varies,
        )


def check_variant(study: ModuleType, run: Run, shape: Any, peer: Run | None = None) -> CheckOutcome:
    """The worst of two plain draws, and of one of every adversarial kind that the study has."""
    worst, drawn = CheckOutcome(CheckResult.CORRECT, max_abs=0.0, relative=0.0), [("", None)] * 2
    for name, kind in [*drawn, *getattr(study, "adversarial", {}).items()]:
        try:
            one = check_once(study, run, shape, kind, peer)
        except NotImplementedError as error:
            return CheckOutcome(CheckResult.UNSUPPORTED, str(error))
        if one.why:
            why = f"with {name} inputs: {one.why}" if name else one.why
            errors = finite(one.absolute), finite(one.relative)
            return CheckOutcome(CheckResult.WRONG, why, *errors, kind=name)
        worst = worst.with_(one, name)
    return worst


def finite(number: float) -> float | None:
    """JSON has no other numbers."""
    return number if math.isfinite(number) else None
