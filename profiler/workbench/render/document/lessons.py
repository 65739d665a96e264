"""What was learned, by kind of change: an overview, and every step with what it moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from workbench.judge.lessons import Lesson, Place, Technique
from workbench.judge.predictions import PredictionOutcome
from workbench.render.document import why
from workbench.render.document.authored import authored
from workbench.render.document.blocks import (
    Block,
    Bullets,
    Document,
    Paragraph,
    Section,
    Table,
    Text,
    code,
    joined,
    line,
    strong,
    words,
)
from workbench.render.document.fields import Field, field, table
from workbench.render.document.phrases import has_figures, kind, names, parent_of, verdict
from workbench.render.document.stalls import stall_words
from workbench.render.document.step import verdict_line
from workbench.render.numbers import COUNTS, fine, interval, quantity, signed, times
from workbench.words import ABSENT, HEADLINE, NONE, Change, PredictionResult, Verdict

TITLE = "What was learned"
Sources: TypeAlias = Mapping[tuple[str, str], str]  # study and card to how they are told
Named: TypeAlias = Callable[[Lesson], Text]
FIGURES = 3  # of those that moved most
RATIOS = (
    "A ratio above 1 is faster than the step's parent: chained, unless another regime is named, "
    "with its 95 % interval in brackets. What moved is of the captures under ncu. Where a step is "
    "not judged, whether it helps is said by its interval alone. Lessons are quoted from the "
    "steps' author; all else is computed from the evidence on record."
)


def page(
    found: Sequence[Technique],
    left_out: Sequence[Lesson] = (),
    *,
    whole: bool,
    all_kinds: bool = True,
) -> Document:
    """``left_out`` are steps without current evidence. ``whole``: with every step, not the overview
    alone; ``all_kinds``: no other steps were asked for, so that a kind without one has none.
    """
    named = _naming([*(each for part in found for each in part.lessons), *left_out])
    told: list[Block] = [Paragraph(_about(found)), Paragraph(words(RATIOS)), overview(found, named)]
    if all_kinds and (untried := _untried(found)):
        told.append(Paragraph(line("No step is of these kinds: ", names(untried), ".")))
    if left_out:
        out = joined([_untimed(each, named) for each in left_out])
        told.append(Paragraph(line("Left out, without current evidence: ", out, ".")))
    if whole:
        told += sections(found, named)
    return Document(words(TITLE), tuple(told))


def _untried(found: Sequence[Technique]) -> list[str]:
    known = {each.change for each in found}
    return [str(kind) for kind in Change if kind not in known]


def _about(found: Sequence[Technique]) -> Text:
    every = [lesson for technique in found for lesson in technique.lessons]
    studies = list(dict.fromkeys(lesson.study for lesson in every))
    cards = ", ".join(dict.fromkeys(lesson.gpu for lesson in every))
    kinds = len([technique for technique in found if technique.change])
    told = [_counted(len(every), "step"), *([_counted(kinds, "kind")] if kinds else [])]
    text = f"{' of '.join(told)}, on the ladders of "
    return line(text, names(studies), f", measured on {cards}.")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _fields(named: Named) -> list[Field[Technique]]:
    ratios = partial(_ratios, named=named)
    return [
        field("technique", "technique", lambda t: t.kind.title),
        field("id", "id", lambda t: code(t.change or ""), rank=4),
        field("steps", "steps", lambda t: str(len(t.lessons)), right=True),
        field("kept", "kept", lambda t: ratios(t, Verdict.KEPT), rank=1),
        field("rejected", "rejected", lambda t: ratios(t, Verdict.REJECTED), rank=2),
        field("open", "inconclusive", lambda t: ratios(t, Verdict.INCONCLUSIVE), rank=3),
    ]


def overview(found: Sequence[Technique], named: Named) -> Table:
    """A line a technique: its steps by verdict, with the ratios that decided."""
    return table("lessons", _fields(named), found, key=lambda t: str(t.change or ""))


def _naming(lessons: Iterable[Lesson]) -> Named:
    """How a step is called: with its study, where a step of another is called the same."""
    studies: dict[str, set[str]] = {}
    for each in lessons:
        studies.setdefault(each.row.variant, set()).add(each.study)

    def named(lesson: Lesson) -> Text:
        variant = lesson.row.variant
        return line(code(variant), f" of {lesson.study}" * (len(studies[variant]) > 1))

    return named


def _sources(found: Sequence[Technique]) -> Sources:
    """What tells the steps of a page apart: their studies and cards, where there are several."""
    every = [lesson for technique in found for lesson in technique.lessons]
    studies, cards = {each.study for each in every}, {each.gpu for each in every}
    return {
        (each.study, each.gpu): ", ".join(
            name for name, others in ((each.study, studies), (each.gpu, cards)) if len(others) > 1
        )
        for each in every
    }


def _ratios(technique: Technique, wanted: Verdict, named: Named) -> Text:
    told = [_brief(each, named) for each in technique.lessons if each.row.verdict == wanted]
    return joined(told) if told else words(NONE)


def _brief(lesson: Lesson, named: Named) -> Text:
    ratio = lesson.deciding.ratio if lesson.deciding else None
    return line(named(lesson), f" {fine(ratio.ratio)}" if ratio else " untimed")


def sections(found: Sequence[Technique], named: Named) -> list[Block]:
    """One a technique, with one a step in it."""
    sources = _sources(found)
    return [_technique(each, sources, named) for each in found]


def _technique(found: Technique, sources: Sources, named: Named) -> Section:
    begin = line(code(found.change), ": ") if found.change else ()
    told: list[Block] = [Paragraph(line(begin, found.kind.how, "."))]
    told.append(Bullets(tuple(_where(found, named))))
    told += [_step(each, sources[each.study, each.gpu]) for each in found.lessons]
    return Section(found.change or "untold", words(_capital(found.kind.title)), tuple(told))


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]


def _where(found: Technique, named: Named) -> Iterable[Text]:
    """Where it helped, where it did not, and where that is open; each once."""
    unmeasured = [each for each in found.lessons if not each.places]
    for title, wanted in (
        ("Helped", Verdict.KEPT),
        ("Did not help", Verdict.REJECTED),
        ("Open", Verdict.INCONCLUSIVE),
    ):
        told = [_there(named(step), places) for step, places in found.where(wanted)]
        told += [_untimed(each, named) for each in unmeasured if each.row.verdict == wanted]
        if told:
            yield line(strong(f"{title}:"), " ", joined(told, "; "), ".")


def _there(named: Text, places: Sequence[Place]) -> Text:
    told = [line(fine(place.ratio.ratio), _at(place)) for place in places]
    return line(named, " ", joined(told))


def _untimed(lesson: Lesson, named: Named) -> Text:
    return line(named(lesson), f" ({verdict(lesson.row)})")


def _at(place: Place) -> Text:
    regime = "" if place.regime == HEADLINE else f" {place.regime}"
    return line(f"{regime} at ", code(place.shape))


def _step(lesson: Lesson, source: str) -> Section:
    row = lesson.row
    told: list[Block] = [Paragraph(verdict_line(row, lesson.shape))]
    if moved := tuple(_moved(lesson)):
        told.append(Bullets(moved))
    if lesson.step.lesson.strip():
        told.append(Paragraph(line(strong("Its lesson:"), " “", authored(lesson.step.lesson), "”")))
    named = f" ({source}): " if source else ": "
    title = line(code(row.variant), " over ", code(parent_of(row)), named)
    whole = line(title, authored(lesson.step.key_change))
    return Section(row.variant, whole, tuple(told), kind(row), row.variant)


def _moved(lesson: Lesson) -> Iterable[Text]:
    pair = lesson.row.against_parent
    if places := [line(interval(p.ratio), _at(p), _judged(p)) for p in lesson.elsewhere]:
        yield line("Elsewhere: ", joined(places, "; "), ".")
    if pair is None:
        if has_figures(lesson.row):
            yield words(f"What it moved: {ABSENT}.")
        return
    where = line(" at ", code(lesson.row.compared_at)) if lesson.row.compared_at else ()
    if pair.factors:
        text = f"{why.brief_equation(pair.factors)}, {why.durations(pair.factors)}"
        yield line("Moved", where, ": ", text, ".")
    if stalls := [f"{stall_words(t.reason)} {signed(t.change)}" for t in lesson.stalls]:
        yield words(f"Stall time (µs): {'; '.join(stalls)}.")
    if top := [_figure(m.label, m.unit, m.before, m.after) for m in pair.standouts.top[:FIGURES]]:
        yield words(f"Figures: {'; '.join(top)}.")
    if pair.standouts.launch:
        yield words(f"Launched otherwise: {why.launch(pair)}.")
    if lesson.row.predictions:
        yield line("Predicted: ", joined(list(map(_predicted, lesson.row.predictions)), "; "), ".")


def _judged(place: Place) -> str:
    return "" if place.regime == HEADLINE else f" (would be {place.verdict})"


def _figure(label: str, unit: str, before: float, after: float) -> str:
    shown = "" if unit == COUNTS else f" {unit}"
    return f"{label} {quantity(before, unit)} to {quantity(after, unit)}{shown}"


def _predicted(one: PredictionOutcome) -> Text:
    came = ABSENT
    if one.result != PredictionResult.NOT_MEASURABLE:
        in_factors = one.expected.endswith("x")
        came = _grown(one) if in_factors else quantity(one.after, one.unit)
    return words(f"{one.label} {one.expected}, came {came} ({one.result})")


def _grown(one: PredictionOutcome) -> str:
    """As a factor; down to nothing it is that of nothing."""
    return "0x" if one.before and one.after == 0 else times(one.before, one.after)
