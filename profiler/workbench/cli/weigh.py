"""``weigh``: the operators of a model, and what a variant can save of a step."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from workbench import bounds
from workbench.app.target import Target
from workbench.cli.options import WeighOptions
from workbench.cli.streams import show
from workbench.derive.speedup import LEVEL, ratio_of, time_of
from workbench.derive.trace_weights import ModelTrace, Weighed, Weight, weighed
from workbench.errors import GateFailed, UsageError, nearest
from workbench.evidence.records import ShippedTime
from workbench.load import ShapeEvidence, fullest_timing, load
from workbench.render import doc
from workbench.render.doc import number, percent
from workbench.study.files import readable_text, require_readable
from workbench.study.front_ends import imported, is_compiling, package_of
from workbench.study.model import Study, Variant
from workbench.study.params import including
from workbench.study.sources import source_files
from workbench.words import HEADLINE, NONE

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


# ---- recorded ratios ---------------------------------------------------------------------------


def times_of(
    every: Mapping[str, ShapeEvidence], variant: str, reference: str
) -> Iterator[ShippedTime]:
    """At every shape where a call of it takes time, beside the reference where that was timed."""
    for shape, evidence in every.items():
        timing = fullest_timing(evidence, filter(None, [variant, reference]))
        if timing is None or variant not in timing.chained:
            continue
        beside = reference if reference in timing.chained else ""
        mine, its = (timing.times.get((n, HEADLINE, False), {}) for n in (variant, beside))
        time, check = time_of(mine, HEADLINE), evidence.variants[variant].checks.get(shape)
        if time is None:
            continue
        ratio = ratio_of(its, mine, timing.timing.first_planned) if its else None
        yield ShippedTime(
            shape=shape,
            microseconds=time.value,
            sessions=time.sessions,
            file=f"{shape}/timings/{timing.file}",
            reference=beside if ratio else "",
            ratio=ratio.ratio if ratio else None,
            low=ratio.low if ratio else None,
            high=ratio.high if ratio else None,
            level=ratio.level if ratio else LEVEL,
            times_reference=check.times_reference if check else None,
        )


def reference_of(study: Study) -> Variant | None:
    """The reference that is torch alone, the primary one where it is: everybody who has the package
    has torch. None where there is no such reference.
    """
    plain = [variant for variant in study.ladder.references if is_plain(study, variant)]
    primary = [variant for variant in plain if variant.name == study.ladder.primary_reference]
    return next(iter([*primary, *plain]), None)


def is_plain(study: Study, reference: Variant) -> bool:
    """Whether torch alone runs it, and nothing of it is compiled. A reference that ``try`` names
    with dots calls nothing of the files that it names.
    """
    text = readable_text(reference.module)
    is_dotted = "given.Dotted(" in text and "given.File(" not in text
    paths = [reference.module] if is_dotted else source_files(study, reference)
    texts = [readable_text(path) for path in paths]
    return (
        bool(paths)
        and not reference.needs
        and all(path.suffix == ".py" for path in paths)
        and not any("cuda.kernel" in text for text in texts)
        and not is_compiling(paths)
        and not needed_by(texts)
    )


def needed_by(texts: Sequence[str]) -> list[str]:
    """The packages beside torch that some Python sources import."""
    modules = sorted({name for text in texts for name in imported(text)[0]})
    others = (*sys.stdlib_module_names, "torch", "workbench")
    packages = (package_of(name) for name in modules if name.partition(".")[0] not in others)
    return list(dict.fromkeys(packages))


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
