"""A variant with each of its switches put back, in one table."""

from __future__ import annotations

from workbench.derive.speedup import Ratio
from workbench.judge.leave_one_out import LeftOut, Worth
from workbench.render.document.blocks import (
    Block,
    Bullets,
    Cell,
    Field,
    Paragraph,
    Table,
    Text,
    code,
    field,
    figure_cell,
    interval_cell,
    line,
    table,
    warned,
    words,
)
from workbench.render.document.sentences import sentence, sentences
from workbench.render.numbers import ends, factor, interval, microseconds, shorten
from workbench.words import NONE, Origin, Parameter

WHY = 70
INTERVAL = "[95 % interval]"


def _text(value: Parameter) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _time(one: Worth) -> Cell:
    if one.microseconds is None:
        return Cell(words(shorten(sentence(one.why), WHY) or NONE))
    return figure_cell(one.microseconds.value, note=ends(one.microseconds))


def _came(one: Worth) -> Text:
    switch = one.switch
    return line(code(switch.step), " on ", code(switch.parent)) if switch.step else words(NONE)


FIELDS: list[Field[Worth]] = [
    field("switch", "switch", lambda w: code(f"{w.switch.name}={_text(w.switch.value)}")),
    field("back", "put back to", lambda w: _text(w.switch.default), rank=2),
    field("time", "time without it", _time, unit="µs", note=INTERVAL, right=True, rank=1),
    field("end", f"worth at the end {INTERVAL}", lambda w: interval_cell(w.at_the_end), right=True),
    field("came", f"when it came {INTERVAL}", lambda w: interval_cell(w.when_it_came), right=True),
    field("step", "as the step", _came, rank=3),
]


def left_out_table(found: LeftOut) -> Table:
    return table("leave-one-out", FIELDS, found.switches, key=lambda w: w.switch.without)


def left_out_view(found: LeftOut) -> list[Block]:
    how = "measured now" if found.evidence == Origin.MEASURED else "recorded evidence"
    took = microseconds(found.microseconds.value) if found.microseconds else sentence(found.why)
    head = line(
        code(found.variant), f" at {found.shape} on {found.gpu}, {how}: {took}, chained; every "
        "variant of the table in the same sessions",
    )  # fmt: skip
    told = left_out_table(found), Bullets(tuple(account(found)))
    return [Paragraph(head), *warned(sentences(found.warnings)), *told]


def account(found: LeftOut) -> list[Text]:
    """All together, and whether they are independent of each other."""
    if found.together is None:
        return [line("all together over ", code(found.base), f": {NONE}")]
    told = [line("all together: ", interval(found.together), " of ", code(found.base))]
    if found.product is not None and len(found.switches) > 1:
        told.append(words(independence(found.product, found.together)))
    unsure = [w for w in found.switches if w.at_the_end and not is_clear(w.at_the_end)]
    if unsure:
        names = ", ".join(w.switch.name for w in unsure)
        told.append(words(f"{names}: the interval at the end holds 1, so nothing is shown for it"))
    return told


def independence(product: float, together: Ratio) -> str:
    """What each is worth at the end, multiplied, beside what all are worth."""
    text = f"what each is worth at the end multiplies to {factor(product)}"
    low, high = together.low, together.high
    if low is not None and high is not None and low <= product <= high:
        return f"{text}: the switches do not get in each other's way as far as this can tell"
    if product < together.ratio:
        return f"{text}, less than all together: with one gone others do a part of its work"
    return f"{text}, more than all together: a part of what one gains depends on another"


def is_clear(ratio: Ratio) -> bool:
    """Whether its interval leaves out 1."""
    return ratio.low is not None and ratio.high is not None and not ratio.low <= 1 <= ratio.high
