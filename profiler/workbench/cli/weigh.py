"""``weigh``: the operators of a model, and what a variant can save of a step."""

from __future__ import annotations

from workbench.app.weigh import ModelWeights, weigh
from workbench.cli.options import WeighOptions
from workbench.cli.streams import show
from workbench.derive.trace_weights import Weight
from workbench.errors import UsageError
from workbench.render import doc
from workbench.render.doc import number, percent
from workbench.words import NONE


def run(options: WeighOptions) -> None:
    if bool(options.variant) != bool(options.operator):
        raise UsageError(
            "a variant is weighed where it replaces an operator",
            hint="name both: weigh TRACE VARIANT --operator aten::softmax",
        )
    target = options.target([options.variant]) if options.variant else None
    show(options, weigh(options.trace, target, options.variant or "", options.operator or ()))


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
