"""``weigh``: the operators of a model, and what a variant can save of a step."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from workbench import bounds
from workbench.app.ratios import reference_of, times_of
from workbench.app.target import Target
from workbench.cli.options import WeighOptions
from workbench.cli.streams import show
from workbench.derive.trace_weights import ModelTrace, Weighed, Weight, weighed
from workbench.errors import GateFailed, UsageError, nearest
from workbench.load import load
from workbench.render import doc
from workbench.render.doc import number, percent
from workbench.study.files import require_readable
from workbench.study.params import including
from workbench.words import NONE

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


def run(options: WeighOptions) -> None:
    if bool(options.variant) != bool(options.operator):
        raise UsageError(
            "a variant is weighed where it replaces an operator",
            hint="name both: weigh TRACE VARIANT --operator aten::softmax",
        )
    target = options.target([options.variant]) if options.variant else None
    show(options, weigh(options.trace, target, options.variant or "", options.operator or ()))


def weigh(path: Path, target: Target | None, variant: str, replaced: Sequence[str]) -> ModelWeights:
    """Weigh a trace; with a ``variant``, also the most that it can save where it replaces these
    operators. Raises UsageError for what is no such trace, and for unknown names.
    """
    trace, saved = read_trace(path), dict[str, float]()
    recorded: tuple[str, str, str, float | None] = ("", "", "", None)
    if target is not None:
        study, (name,) = including(target.study, [variant])
        reference = reference_of(study)
        beside = reference.name if reference else study.ladder.primary_reference
        evidence = load(study, target.folder, {shape: [name] for shape in study.shapes})
        ratios = {time.ratio: time.shape for time in times_of(evidence, name, beside) if time.ratio}
        if not ratios:
            raise GateFailed(
                f"no ratio of '{name}' to {beside} is recorded",
                hint="`workbench ablate` measures it where there is a GPU with ncu",
            )
        ratio = max(ratios)
        recorded = name, beside, ratios[ratio], ratio
        saved = dict.fromkeys(replaced, max(0.0, 1 - 1 / ratio))
    result = weighed(trace, saved)
    if not result.weights:
        raise UsageError(f"{path.name} has no kernels of a GPU", hint=HINT)
    launched = [weight.operator for weight in result.weights]
    for operator in saved:
        if operator not in launched:
            raise UsageError(
                f"no kernel of {path.name} was launched by '{operator}'",
                hint=nearest(operator, launched),
            )
    return ModelWeights(path.name, result, *recorded)


def read_trace(path: Path) -> ModelTrace:
    require_readable(path, bounds.TRACE, hint=HINT)
    try:
        with path.open("rb") as raw:
            file = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            text = file.read(bounds.TRACE + 1)
        if len(text) > bounds.TRACE:
            raise UsageError(
                f"{path.name} holds more than {bounds.TRACE >> 20} MiB", hint="profile fewer steps"
            )
        return msgspec.json.decode(text, type=ModelTrace)
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise UsageError(f"{path.name} is no trace of torch.profiler: {error}", hint=HINT) from None


SHOWN = 20  # the others are summed
WIDEST = 60  # of a kernel's name
WEIGHTS: list[doc.Field[Weight]] = [
    doc.Field("operator", "operator", lambda w: w.operator[:WIDEST]),
    doc.Field("extents", "inputs", lambda w: w.extents or NONE),
    doc.numeric("calls", "calls", lambda w: str(w.calls)),
    doc.numeric("launches", "launches", lambda w: str(w.launches)),
    doc.numeric("time", "time", lambda w: number(w.microseconds), unit="µs"),
    doc.numeric("share", "share of steps", lambda w: percent(w.share)),
    doc.numeric("most", "saved at most", lambda w: NONE if w.most is None else percent(w.most)),
]


def blocks(result: ModelWeights, _: object) -> list[doc.Block]:
    weighed = result.weighed
    shown, others = weighed.weights[:SHOWN], weighed.weights[SHOWN:]
    busy = sum(weight.share for weight in weighed.weights)
    title = (
        f"{result.trace}: {weighed.steps} steps of {number(weighed.step_microseconds)} µs, kernels "
        f"take {percent(busy)} of them"
    )
    made: list[doc.Block] = [doc.paragraph(title), doc.table("weights", WEIGHTS, shown)]
    if others:
        share = sum(weight.share for weight in others)
        made.append(doc.paragraph(f"{len(others)} others: {percent(share)}"))
    if result.ratio is not None:
        most = sum(weight.most or 0.0 for weight in weighed.weights)
        made.append(
            doc.paragraph(
                f"{result.variant} saves at most {percent(most)} of a step: its largest recorded "
                f"ratio is {result.ratio:.3g}x of {result.reference}, at {result.shape}"
            )
        )
    return made
