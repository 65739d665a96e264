"""``gate``: what a change did to the variants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from workbench.app.gate import Gated, GateRequest, gate
from workbench.cli.options import GateOptions
from workbench.cli.streams import executor, note, show
from workbench.errors import CannotTell, GateFailed, UsageError
from workbench.judge.commits import Difference, VariantChange, difference_label
from workbench.judge.findings import sentence
from workbench.render import doc, in_short
from workbench.render.doc import number
from workbench.study.workspace import find_workspace
from workbench.words import NONE, Cause, Move, grouped


def run(options: GateOptions) -> int:
    if bool(options.env) == (options.base is not None):
        raise UsageError(
            "name a commit to compare with, or two environments, and not both",
            hint="workbench gate HEAD~1, or workbench gate --env old=PYTHON --env new=PYTHON",
        )
    commits = (options.base or "", options.head)
    asked = GateRequest(**{each.name: getattr(options, each.name) for each in fields(GateRequest)})
    workspace = find_workspace(options.project)
    gated = gate(executor(options.on), workspace, commits, asked, options.env or ())
    show(options, gated)
    changes = gated.changes
    if any(change.is_bad for change in changes):
        note("error: " + ", ".join(f"{c.variant} is {c.verdict}" for c in changes if c.is_bad))
        note("hint: add --json to see all that moved")
        return GateFailed.exit_code
    open_ = [change for change in changes if change.verdict == Move.CANNOT_TELL]
    if any(change.cause == Cause.METHOD for change in open_):
        note("hint: the rules differ: read that part of the change, no figure can judge it")
    elif open_:
        note("hint: to decide, run the same command on a machine with a GPU and ncu")
    return CannotTell.exit_code if open_ else 0


TIERS = ("compiler", "counters", "times")
SHOWN = 12  # findings
KINDS = {
    Move.FASTER: doc.Marking.KEPT,
    Move.SLOWER: doc.Marking.REJECTED,
    Move.BROKEN: doc.Marking.REJECTED,
    Move.CANNOT_TELL: doc.Marking.INCONCLUSIVE,
}


Moved = tuple[str, Difference]  # of a variant


CHANGES: list[doc.Field[VariantChange]] = [
    doc.Field("variant", "variant", lambda c: c.variant),
    doc.Field("verdict", "verdict", lambda c: doc.strong(c.verdict) if c.is_bad else c.verdict),
    doc.Field("by", "by", lambda c: TIERS[c.tier], rank=2),
    doc.Field("cause", "cause", lambda c: c.cause or NONE, rank=1),
    doc.Field("why", "why", lambda c: sentence(c.why), rank=1),
]
FINDINGS: list[doc.Field[Moved]] = [
    doc.Field("variant", "variant", lambda m: m[0]),
    doc.Field("kernel", "kernel", lambda m: m[1].kernel or NONE, rank=3),
    doc.Field("what", "what", lambda m: difference_label(m[1].what)),
    doc.numeric("before", "before", lambda m: shown(m[1].before), rank=1),
    doc.numeric("after", "after", lambda m: shown(m[1].after), rank=1),
]


def shown(value: float | str) -> str:
    return value or NONE if isinstance(value, str) else number(value, 4)


def blocks(result: Gated, _: object) -> Iterator[doc.Block]:
    """The verdict in a line, then each study; what is the same is a line."""
    counts = {move: sum(change.verdict == move for change in result.changes) for move in Move}
    text = ", ".join(f"{count} {move}" for move, count in counts.items() if count)
    short = f"{result.base[:10]} → {result.head[:10]}"
    yield doc.paragraph(doc.strong(f"{short}: {text or 'no variant'}"))
    for each in result.studies:
        yield doc.section(each.study, doc.code(each.study), *_study(each.changes))


def _study(changes: Sequence[VariantChange]) -> Iterator[doc.Block]:
    same = [change for change in changes if change.verdict == Move.SAME]
    listed = [change for change in changes if change.verdict != Move.SAME]
    if listed:
        key, kind = (lambda c: c.variant), (lambda c: KINDS.get(c.verdict, doc.Marking.PLAIN))
        yield doc.table("changes", CHANGES, listed, key=key, kind=kind)
    if same:
        yield doc.paragraph(f"same: {', '.join(change.variant for change in same)}")
    if stale := ", ".join(change.variant for change in same if change.stale):
        why = (
            "evidence belongs to whole files, comments included. `workbench ablate` measures again"
        )
        yield doc.paragraph(f"the recorded evidence of {stale} is stale now: {why}")
    moved = [(c.variant, one) for c in listed for one in c.differences]
    if moved:
        yield doc.table("moved", FINDINGS, moved[:SHOWN], key=lambda m: m[0])
    if len(moved) > SHOWN:
        yield doc.paragraph(f"and {len(moved) - SHOWN} more: --json shows all")
    also = grouped((sentence(finding), c.variant) for c in listed for finding in c.also)
    for text, variants in also.items():
        yield doc.paragraph(doc.joined(list(map(doc.code, variants))), f": {text}")


def _after(result: Gated) -> dict[str, object]:
    """Measure what is worse, or what is not decided."""
    for wanted in ((Move.BROKEN, Move.SLOWER), (Move.CANNOT_TELL,)):
        for study in result.studies:
            names = [change.variant for change in study.changes if change.verdict in wanted]
            if names:
                return in_short.command(study.study, "ablate", names[0])
    return {"stop": True, "why_stop": "no variant is slower or broken"}


def brief(result: Gated) -> dict[str, object]:
    """How many of each verdict, and what is not the same, the worst first."""
    counts = {move.value: sum(change.verdict == move for change in result.changes) for move in Move}
    moved = [
        {
            "study": each.study,
            "variant": change.variant,
            "verdict": change.verdict,
            "tier": change.tier,
            "cause": change.cause,
            "why": in_short.short(sentence(change.why)),
            "moved": [difference.what for difference in change.differences],
            "also": [in_short.short(sentence(found)) for found in change.also],
        }
        for each in result.studies
        for change in each.changes
        if change.verdict != Move.SAME
    ]
    return {
        "base": result.base,
        "head": result.head,
        "tier": result.tier,
        "verdicts": {move: count for move, count in counts.items() if count},
        "changes": sorted(
            moved, key=lambda told: told["verdict"] not in (Move.BROKEN, Move.SLOWER)
        ),
        **_after(result),
    }
