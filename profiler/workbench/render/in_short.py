"""What the verbs print under ``--brief``: JSON of 4 KB at most, for programs that read many
answers; ``show ID`` has 8 KB. docs/agents.md says what the keys mean.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from workbench.derive.matching import LaunchGroup
from workbench.derive.speedup import Ratio
from workbench.errors import WorkbenchError
from workbench.judge.advice_rules import Advice, Spot, to_try
from workbench.judge.bottlenecks import Bottleneck, HotLine
from workbench.judge.comparison import Comparison
from workbench.judge.findings import sentence, sentences
from workbench.judge.gates import shows_bug
from workbench.judge.ladder import Ablation, VariantPair
from workbench.judge.program_variants import ProgramStep
from workbench.judge.rows import Row
from workbench.render.answers import place
from workbench.render.as_json import VERSION, Data, plain_data
from workbench.render.document.advice import CATALOGUE, NOTHING
from workbench.render.document.launches import Details
from workbench.render.document.printed_ladder import (
    Where,
    data,
    has_figures,
    parent_of,
    top_stall_of,
)
from workbench.render.text import shorten
from workbench.study.model import base_name
from workbench.words import CheckResult, GateState, Status, Verdict

LIMIT, MORE, MOST = 4096, 8192, 100_000  # bytes of an answer, of `show ID`, and of --json
TEXT = 240  # characters of a sentence
DIGITS = 4  # significant
STEPS = 20
GOING_ON = ("next_command", "stop", "why_stop")
LAST_NUMBER = re.compile(r"(.*?)(\d*)")
UNDECIDED = (Verdict.WRONG, Verdict.UNSEEN_SHAPE, Verdict.INCONCLUSIVE)  # mend it, or run it again


def dumps(data: object, limit: int = LIMIT) -> str:
    """A record or an object in at most ``limit`` bytes: of lists the last entries are left out
    first, then the longest values, and ``left_out`` says how many. Short ones are rounded.
    """
    values = {key: value for key, value in plain_data(data).items() if value is not None}
    values = values if limit == MOST else _rounded(values)
    whole = {"schema_version": VERSION, **values}
    left_out = 0
    while len(text := _text(whole | ({"left_out": left_out} if left_out else {}))) > limit:
        gone = 1
        if lists := {k: v for k, v in whole.items() if isinstance(v, list) and v}:
            name = max(lists, key=lambda key: len(_text(lists[key])))
            half = (len(text) - limit) / len(text) / 2  # of what is too much: nothing more goes
            gone = max(1, int(len(lists[name]) * half))
            whole[name] = lists[name][:-gone]
        else:
            del whole[max(whole, key=lambda key: len(_text(whole[key])))]
        left_out += gone
    return text


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _text(data: object) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def ratio(over: Ratio | None) -> list[float | None] | None:
    """Return a ratio with both ends of its interval."""
    return [over.ratio, over.low, over.high] if over else None


def columns(ladder: Ablation, row: Row, where: Where) -> Data:
    """The values of the ladder's columns in short: ratios with their ends."""
    return {key: _in_short(value) for key, value in data(ladder, row, where).items()}


def _in_short(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    if "ratio" in value:
        ends = [value[end] for end in ("ratio", "low", "high")]
        of = {"of": value["of"], "regime": value["regime"]} if "of" in value else {}
        return {**of, "ratio": ends} if of else ends
    short = {k: _in_short(v) for k, v in value.items() if v not in ("", (), None)}
    return short.get("value", short)


def short(text: str) -> str:
    return shorten(text, TEXT)


def identity(ladder: Ablation, row: Row) -> str:
    """Return the id of its evidence, which ``show`` takes."""
    day = ladder.date[:10].replace("-", "")
    return f"{ladder.study}/{ladder.shape}/{row.variant}" + (f"@{day}" if day else "")


def step(ladder: Ablation, row: Row) -> Data:
    """A step beside its parent and the references.

    All of it is of ``shape``, but for what names a shape itself: a step that is judged at another
    one has the ratio and the gates behind its verdict in ``judged``.
    """
    advice = to_try(row.advice)
    capture = row.evidence_state.get("capture")
    over, of_table = row.deciding_speedup, row.over_parent
    same = over is None or (of_table is not None and over.sessions == of_table.sessions)
    state = CheckResult.UNSUPPORTED if row.is_unsupported else row.status
    corrects = row.step.corrects if row.step and shows_bug(row.gates) else ""
    return {
        **columns(ladder, row, Where.BRIEF_VARIANT),
        "study": ladder.study,
        "parent": parent_of(row) or None,
        "shape": ladder.shape,
        "gpu": ladder.gpu,
        # where more sessions came for the verdict than those of the table
        "deciding_speedup": None if same or row.judged_at else ratio(over),
        "problem": short(sentence(row.problem)) if row.problem else None,
        "state": None if state == Status.CURRENT else state,
        "capture": capture if capture in (Status.DAMAGED, Status.STALE) else None,
        "why": short(f"it corrects {parent_of(row)}: {corrects}") if corrects else None,
        **_wrong_check(row),
        **_judged(row, {"failed": _failed(row)}),
        **limit(advice),
        "evidence": identity(ladder, row),
        "notes": len(ladder.warnings),
        "damage": [short(each) for each in sentences(ladder.damage)] or None,
        "next": next_kinds(advice),
        **after(ladder, row, advice),
    }


def after(ladder: Ablation, row: Row, advice: Sequence[Advice] | None) -> Data:
    """The command that goes on from here, or why nothing is left to try."""
    study = ladder.study
    if row.is_reference:
        return command(study, "ablate")
    if not has_figures(row) or row.verdict in UNDECIDED:
        again = ("--fresh",) if row.verdict == Verdict.INCONCLUSIVE else ()
        return command(study, "ablate", row.variant, *again)
    if row.verdict not in (Verdict.KEPT, Verdict.BASELINE):
        return command(study, "advise", parent_of(row), "--shape", ladder.shape)
    if advice is None:
        return command(study, "profile", row.variant)
    first = next((one for one in advice if not one.is_callers), None)
    if first is None:
        return {"stop": True, "why_stop": sentence(advice[0].why) if advice else NOTHING}
    change = ("--from", row.variant, "--change", CATALOGUE[first.change].title)
    return command(study, "new", free_name(row.variant, ladder.taken), *change)


def free_name(variant: str, taken: Collection[str]) -> str:
    """A name for the next step: ``fix3`` after ``fix2`` where there is no such step yet."""
    word, number = LAST_NUMBER.fullmatch(base_name(variant)).groups()  # type: ignore[union-attr]
    names = {base_name(name) for name in taken}
    first = int(number) + 1 if number else 2
    return next(name for n in itertools.count(first) if (name := f"{word}{n}") not in names)


def command(study: str, *words: str) -> Data:
    """``next_command``; ``study`` is "" for one that needs none."""
    of_study = ("--study", study) if study else ()
    return {"next_command": shlex.join(["workbench", *words, *of_study, "--brief"])}


def _failed(row: Row) -> list[Data] | None:
    """The gates that did not pass, of an open verdict those that are open as well."""
    is_open = row.verdict == Verdict.INCONCLUSIVE
    return [
        {"gate": gate.name, "why": short(sentence(gate.why))}
        for gate in row.gates
        if gate.state == GateState.FAILED
        or (is_open and gate.state == GateState.OPEN and gate.binding)
    ] or None


def _judged(row: Row, of_gates: Data) -> Data:
    """Return what gates say: in an object with its own shape, where that is another than the
    answer's.
    """
    if not row.judged_at:
        return of_gates
    judged = {
        "shape": row.judged_at,
        "speedup_over_parent": ratio(row.deciding_speedup),
        **of_gates,
    }
    return {"judged": {key: value for key, value in judged.items() if value is not None}}


def _wrong_check(row: Row) -> Data:
    """Return where a step that is wrong is wrong."""
    for shape, check in row.checks.items():
        if check.status == CheckResult.WRONG:
            return {
                "at_shape": shape,
                "input_kind": check.kind or None,
                "max_error": check.max_abs,
                "why": short(check.why),
                "hint": check.hint,
            }
    return {}


def limit(advice: Sequence[Advice] | None) -> Data:
    """Return what limits, and the line that shows it."""
    if not advice:
        return {}
    first = advice[0]
    return {"limit": first.limit.id, **_place(first.spot)}


def _place(spot: Spot | HotLine | None) -> Data:
    """The line, and for a helper of another file the line that calls it."""
    called = getattr(spot, "called_at", None)
    line = place(spot.file, spot.line) if spot else None
    return {"at": line, **({"called_at": place(*called)} if called else {})}


def next_kinds(advice: Sequence[Advice] | None) -> list[Data] | None:
    """Kinds of change, the best first; None where nothing was collected."""
    if advice is None:
        return None
    return [
        {
            "kind": change.change,
            "how": CATALOGUE[change.change].how,
            "why": short(sentence(change.why)),
            **_place(change.spot),
            **({"tried_here": change.tried[:2]} if change.tried else {}),
        }
        for change in advice
    ]


def together(steps: Sequence[Data]) -> Data:
    """One step alone, several in a list."""
    return dict(steps[0]) if len(steps) == 1 else {"variants": list(steps)}


def ladder(judged: Ablation) -> Data:
    """The best step, then the rows of the table in short."""
    best = judged.best
    best_step = step(judged, best) if best else {}
    going_on: Data = {k: best_step.pop(k) for k in GOING_ON if k in best_step}
    rows = [
        columns(judged, row, Where.BRIEF) | ({"judged_at": row.judged_at} if row.judged_at else {})
        for row in judged.table_rows[-STEPS:]
    ]
    return {
        "study": judged.study,
        "shape": judged.shape,
        "gpu": judged.gpu,
        "best": {k: v for k, v in best_step.items() if v is not None} or None,
        "references": {row.variant: row.time.value for row in judged.references if row.time},
        "warnings": [short(each) for each in sentences(judged.warnings)],
        "variants": rows,
        **going_on,
    }


def more(ladder: Ablation, row: Row) -> Data:
    """A step with its figures, stalls and bottlenecks, for ``show ID``."""
    shown = [name for name, share in row.stalls.items() if share >= 0.02]
    top = top_stall_of(row)
    gates = {gate.name: gate.state for gate in row.gates}
    return {
        **step(ladder, row),
        **_judged(row, {"failed": _failed(row), "gates": gates}),
        "figures": {name: figure.value for name, figure in row.figures.items()},
        "top_stall": top.reason if top else None,
        "stalls": {name: row.stalls[name] for name in shown},
        "bottlenecks": [_bottleneck(each) for each in row.bottlenecks],
    }


def _bottleneck(limit: Bottleneck) -> Data:
    return {
        "title": limit.title,
        "metric": limit.metric,
        "value": limit.value,
        **_place(limit.hot_line),
    }


def failed(why: Mapping[str, str]) -> list[Data] | None:
    """Return what failed, by variant; None for nothing."""
    return [{"variant": name, "why": short(text)} for name, text in why.items()] or None


def pair(ladder: Ablation, two: VariantPair) -> Data:
    """Two variants: the ratio, its factors, the largest changes."""
    return {
        "study": ladder.study,
        "shape": ladder.shape,
        "gpu": ladder.gpu,
        "before": two.before.variant,
        "after": two.after.variant,
        "speedup": ratio(two.speedup),
        **(_compared(two.comparison) if two.comparison else {"stalls_us": []}),
        "warnings": [short(each) for each in sentences(two.warnings)],
        **limit(to_try(two.after.advice)),
        "evidence": [identity(ladder, row) for row in (two.before, two.after)],
        **command(ladder.study, "advise", two.after.variant, "--shape", ladder.shape),
    }


def kernel(details: Details, launches: int) -> Data:
    """The launches of a report that are alike."""
    return {
        "kernel": details.launch.kernel,
        "launches": launches,
        "figures": {name: figure.value for name, figure in details.figures.items()},
        **limit(details.advice),
        "next": next_kinds(to_try(details.advice)),
        "bottlenecks": [_bottleneck(each) for each in details.bottlenecks[:5]],
    }


def listed(group: LaunchGroup) -> Data:
    """The launches of a program that are alike."""
    return {
        "kernel": group.typical.kernel,
        "launches": len(group.launches),
        "microseconds": group.microseconds,
    }


def program_step(step: ProgramStep) -> Data:
    return {
        "variant": step.kept.variant,
        "microseconds": step.microseconds,
        "speedup_over_parent": ratio(step.speedup_over_parent),
        "verdict": step.verdict,
    }


def kernel_pair(compared: Comparison, advice: Sequence[Advice] | None) -> Data:
    sides = {"before": compared.before, "after": compared.after}
    return {**sides, **_compared(compared), **limit(advice)}


def _compared(comparison: Comparison) -> Data:
    return {"factors": comparison.decomposition, "stalls_us": comparison.stall_microseconds[:5]}


PERMISSION = "ERR_NVGPUCTRPERM"  # ncu's, for counters that a user may not read


def error(why: WorkbenchError | None) -> Data:
    """Why there is no answer, or no profile in it; empty without an error."""
    if why is None:
        return {}
    kind = "ncu.permission" if PERMISSION in why.message else why.code
    said: Data = {
        "code": kind,
        "exit_code": why.exit_code,
        "message": _cut(why.message, LIMIT // 2),
    }
    return {"error": {**said, "hint": _cut(why.hint, LIMIT // 4)} if why.hint else said}


def _cut(text: str, most: int) -> str:
    """Return the beginning of a text, of at most so many bytes in JSON."""
    while len(json.dumps(text)) > most:
        text = text[: len(text) * 9 // 10]
    return text
