"""The weight of operators in a model, of a trace by torch.profiler."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from workbench import bounds
from workbench.app.ship import reference_of, times_of
from workbench.app.target import Target
from workbench.derive.trace_weights import ModelTrace, Weighed, weighed
from workbench.errors import GateFailed, UsageError, nearest
from workbench.load import load
from workbench.study.files import require_readable
from workbench.study.workspace import including

HINT = "profile(record_shapes=True) of torch.profiler, then export_chrome_trace(FILE)"


@dataclass(frozen=True)
class ModelWeights:
    """``ratio`` is the largest that is recorded of the variant, beside ``reference`` at ``shape``;
    None without a variant.
    """

    trace: str
    weighed: Weighed
    variant: str = ""
    reference: str = ""
    shape: str = ""
    ratio: float | None = None


def weigh(path: Path, target: Target | None, variant: str, replaced: Sequence[str]) -> ModelWeights:
    """Weigh a trace; with a ``variant``, also the most that it can save where it replaces these
    operators. Raises UsageError for what is no such trace, and for unknown names.
    """
    trace = read_trace(path)
    if target is None:
        return ModelWeights(path.name, require_some(path, weighed(trace, {})))
    target.study, (name,) = including(target.study, [variant])
    reference = reference_of(target.study)
    beside = reference.name if reference else target.study.ladder.primary_reference
    evidence = load(target.study, target.folder, {shape: [name] for shape in target.study.shapes})
    ratios = {time.ratio: time.shape for time in times_of(evidence, name, beside) if time.ratio}
    if not ratios:
        raise GateFailed(
            f"no ratio of '{name}' to {beside} is recorded",
            hint="`workbench ablate` measures it where there is a GPU with ncu",
        )
    ratio = max(ratios)
    saved = dict.fromkeys(replaced, max(0.0, 1 - 1 / ratio))
    result = require_some(path, weighed(trace, saved))
    launched = [weight.operator for weight in result.weights]
    for operator in replaced:
        if operator not in launched:
            raise UsageError(
                f"no kernel of {path.name} was launched by '{operator}'",
                hint=nearest(operator, launched),
            )
    return ModelWeights(path.name, result, name, beside, ratios[ratio], ratio)


def require_some(path: Path, result: Weighed) -> Weighed:
    if not result.weights:
        raise UsageError(f"{path.name} has no kernels of a GPU", hint=HINT)
    return result


def read_trace(path: Path) -> ModelTrace:
    require_readable(path, bounds.TRACE, hint=HINT)
    try:
        with path.open("rb") as raw:
            file = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            text = file.read(bounds.TRACE + 1)
        if len(text) > bounds.TRACE:
            raise UsageError(
                f"{path.name} holds more than {bounds.TRACE >> 20} MiB",
                hint="profile fewer steps",
            )
        return msgspec.json.decode(text, type=ModelTrace)
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise UsageError(f"{path.name} is no trace of torch.profiler: {error}", hint=HINT) from None
