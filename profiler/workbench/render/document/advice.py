"""What to try next, and how often such advice came true on the ladders of the workspace."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.derive.roofline.ceilings import DRAM
from workbench.judge.advice import advise as ranked
from workbench.judge.advice.advise import Advice, KindRecord, Record
from workbench.judge.advice.candidate import LEAST
from workbench.judge.advice.subject import Spot
from workbench.judge.rows import Ablation, Row, best_of
from workbench.render.document.blocks import (
    Block,
    Bullets,
    Fold,
    Paragraph,
    Section,
    Text,
    code,
    joined,
    line,
    strong,
    words,
)
from workbench.render.document.phrases import names
from workbench.render.numbers import factor, number, percent
from workbench.words import ABSENT, Change, Stage

TITLE = "What to try next"
NOTHING = f"nothing in the capture promises {percent(LEAST)} of the duration"
AT_ITS_BANDWIDTH = f"{Stage.MEMORY}.{DRAM}/{Change.FUSE}"


def to_try(
    advice: Sequence[Advice] | None, record: Record | None = None, after: str = ""
) -> list[Block]:
    """The list that an output of one variant ends in; ``after`` names it where there are several.

    ``record`` is None where there is no ladder to have one.
    """
    title = line(TITLE, *((" after ", code(after)) if after else ()))
    told = listed(advice, record)
    if isinstance(told[0], Paragraph) and len(told) == 1:
        return [Paragraph(line(title, ": ", told[0].text))]
    return [Paragraph(line(title, ":")), *told]


def listed(advice: Sequence[Advice] | None, record: Record | None = None) -> list[Block]:
    """Without a title: what is left at most where memory is the limit, then the ranked advice."""
    first = ranked.to_try(advice, record)
    if not first:
        return [Paragraph(words(NOTHING if first is not None else ABSENT))]
    room = next((one for one in advice or () if one.id == AT_ITS_BANDWIDTH), None)
    told: list[Block] = [Paragraph(words(_room(room)))] if room else []
    items = [_whole(one, first[:place], record) for place, one in enumerate(first)]
    return [*told, Bullets(tuple(items), ordered=True)]


def _room(one: Advice) -> str:
    """From the advice to fuse, which is given where no byte is read twice."""
    limit = one.limit
    return (
        f"DRAM is at {number(limit.value)} {limit.unit}: what moves as many bytes gains "
        f"{factor(1 / limit.share)} at most."
    )


def _whole(one: Advice, before: Sequence[Advice], record: Record | None) -> Text:
    """The change, the limit with its reason unless it stands ``before``, and the record."""
    known = recorded(record.of(one.change)) if record else ""
    past = joined([*([words(known)] if known else []), *tried(one)], "; ")
    return line(
        strong(one.kind.title),
        f", {gain(one)}: {one.kind.how}. Limit: ",
        _limit(one, before),
        *((". Record: ", past) if past else ()),
        ".",
    )


def _limit(one: Advice, before: Sequence[Advice]) -> Text:
    same = next((n for n, b in enumerate(before, 1) if b.limit.id == one.limit.id), 0)
    if same:
        other = "" if before[same - 1].why == one.why else f"; {one.why}"
        return words(f"as {same}{other}")
    return line(
        f"{one.limit.title}; {one.why} (",
        code(one.limit.metric),
        f" = {number(one.limit.value)}{one.limit.unit and ' '}{one.limit.unit}); ",
        spot(one.spot),
    )


def gain(one: Advice) -> str:
    """An upper estimate."""
    return f"up to {factor(one.gain)}"


def spot(found: Spot | None) -> Text:
    """``file:line`` and its share of all stall time."""
    if found is None:
        return words("no line of its own")
    place = code(f"{found.file.rsplit('/', 1)[-1]}:{found.line}")
    return line(place, f", {percent(found.share)} of the stall time" if found.share else "")


def recorded(known: KindRecord) -> str:
    """How often this kind of change was kept, and how often what was promised of it came; "" where
    it was never tried.
    """
    if not known.tried:
        return ""
    told = f"kept {known.kept} of {known.tried}"
    if known.ratio:
        told += f", median {factor(known.ratio)}"
    if known.advised:
        told += f"; half of what was promised came {known.came_true} of {known.advised} times"
    return told


def tried(one: Advice) -> list[Text]:
    """What was tried on this variant already."""
    steps = [line(code(step.variant), f" {step.verdict}") for step in one.tried]
    return [line("tried here: ", joined(steps))] if steps else []


def size(record: Record) -> Text:
    """Of what the record is made."""
    if not record.steps:
        return words("No track record yet: no step of a ladder was kept or rejected.")
    return line(
        f"Track record: {record.steps} judged steps of ",
        names(list(record.studies)),
        f", {record.told} with a kind. A promise came true where the step that answered it was "
        "kept and saved at least half of it under ncu.",
    )


def advised(row: Row, ablation: Ablation) -> Section:
    """All of it, for ``workbench advise``."""
    blocks = [*listed(row.advice, ablation.record), Paragraph(size(ablation.record))]
    return Section(row.variant, line(words(f"{TITLE} after "), code(row.variant)), tuple(blocks))


def section(ablation: Ablation) -> Section:
    """Of the best version; folded away, of those at other shapes at which steps are judged."""
    best = ablation.best
    shown: list[Block] = listed(best.advice, ablation.record) if best else []
    others: list[Block] = []
    for ladder in ablation.ladders:
        row = best_of(ladder.rows)
        if row is not None and ladder.shape != ablation.shape:
            title = line("After ", code(row.variant), " at ", code(ladder.shape), ":")
            others += [Paragraph(title), *listed(row.advice, ablation.record)]
    if others:
        shown.append(Fold(words("At other shapes"), tuple(others), brief=True))
    nothing = Paragraph(words(f"{ABSENT}."))
    return Section("next", words(TITLE), tuple(shown) or (nothing,))
