"""How often the change that a step made was among those advised at its parent: the table of
docs/advice.md, from the evidence on record. Run it as ``python -m benchmarks.advice``.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.pages import table

from workbench.app.executor import Local
from workbench.app.target import find_target
from workbench.judge.advice.ranking import TOP, Trial, record, to_try
from workbench.judge.ladder import judge
from workbench.judge.snapshot import snapshot
from workbench.words import Change

KINDS = [kind for kind in Change if kind != Change.CHOOSE]
DRAWS = 10_000
PERCENT = 100.0
Says = Callable[[Trial, Sequence[Trial]], Sequence[Change]]  # of a trial, and of those before it


def ours(trial: Trial, _: Sequence[Trial]) -> list[Change]:
    """By the parent's capture alone."""
    return [one.change for one in to_try(trial.advised) or ()]


def with_record(trial: Trial, before: Sequence[Trial]) -> list[Change]:
    """As it would have been given then: with the record of the steps before this one."""
    known = record("before", before)
    return [one.change for one in to_try(trial.advised, known) or ()]


def first(trial: Trial, _: Sequence[Trial]) -> list[Change]:
    """The first piece of advice alone."""
    return [one.change for one in to_try(trial.advised, top=1) or ()]


def share(hits: int, of: int) -> str:
    return f"{hits} of {of} ({PERCENT * hits / of:.0f} %)" if of else "none"


def row(name: str, says: Says, trials: Sequence[Trial]) -> tuple[str, ...]:
    """All steps, those kept and the others, and how many kinds were named on average."""
    hits, kept, named = 0, 0, 0
    for at, trial in enumerate(trials):
        kinds = set(says(trial, trials[:at]))
        hit = trial.kind in kinds
        hits, kept, named = hits + hit, kept + (hit and trial.was_kept), named + len(kinds)
    good = sum(trial.was_kept for trial in trials)
    shares = (share(hits, len(trials)), share(kept, good), share(hits - kept, len(trials) - good))
    return name, *shares, f"{named / len(trials):.1f}"


def by_chance(trials: Sequence[Trial]) -> str:
    """Three kinds drawn at random, and the share of draws that hit as often as ours did."""
    generator = random.Random(0)
    reached = sum(trial.kind in ours(trial, ()) for trial in trials)
    drawn = [
        sum(trial.kind in generator.sample(KINDS, TOP) for trial in trials) for _ in range(DRAWS)
    ]
    as_good = sum(hits >= reached for hits in drawn)
    return (
        f"Three of {len(KINDS)} kinds at random: {sum(drawn) / DRAWS:.1f} of {len(trials)} on "
        f"average; {as_good} of {DRAWS:,} draws reached {reached}."
    )


def constant(trials: Sequence[Trial]) -> str:
    """The same three kinds at every step: the commonest of all, and of all but the step itself."""
    every = Counter(trial.kind for trial in trials)
    best = sum(count for _, count in every.most_common(TOP))
    without = 0
    for at, trial in enumerate(trials):
        others = Counter(t.kind for n, t in enumerate(trials) if n != at)
        without += trial.kind in [kind for kind, _ in others.most_common(TOP)]
    return (
        f"Always the same three, chosen with hindsight: {share(best, len(trials))}; "
        f"chosen from the other steps: {share(without, len(trials))}."
    )


def always(trials: Sequence[Trial]) -> str:
    """What is advised at nearly every step says little."""
    seen = {(trial.parent, trial.shape): ours(trial, ()) for trial in trials}
    counted = Counter(kind for kinds in seen.values() for kind in kinds)
    most = ", ".join(f"{kind} {count}" for kind, count in counted.most_common(5))
    return f"Advised at {len(seen)} different parents: {most}."


def gains(trials: Sequence[Trial]) -> str:
    """How often the promised part of the duration under ncu came, where advice was followed."""
    followed = [(t, t.answered.saved) for t in trials if t.answered and t.saved is not None]
    over = sum((t.saved or 0) > promised for t, promised in followed)
    half = sum(t.fulfils(promised) for t, promised in followed)
    return f"More than promised came at {over} of {len(followed)}, at least half at {half}."


def steps(trials: Sequence[Trial]) -> str:
    header = ("step", "parent", "kind", "verdict", "promised", "came", "advised at its parent")
    rows = []
    for trial in trials:
        kinds = [f"**{k}**" if k == trial.kind else str(k) for k in ours(trial, ())]
        saved = (trial.answered.saved if trial.answered else None, trial.saved)
        parts = ("" if part is None else f"{PERCENT * part:.0f} %" for part in saved)
        verdict = trial.verdict.label if trial.verdict else ""
        names = (f"`{trial.variant}`", f"`{trial.parent}`", trial.kind)
        rows.append((*names, verdict, *parts, ", ".join(kinds)))
    return table(header, rows, left=len(header))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", type=Path)
    parser.add_argument("--study")
    parser.add_argument("--steps", action="store_true", help="also what was advised at each step")
    asked = parser.parse_args(arguments)
    target = find_target(Local(), asked.project, asked.study, None)
    evidence = snapshot(target.evidence(), target.study.ladder.chain([]))
    judged = judge(evidence, target.workspace.config)
    trials = [t for t in judged.trials if t.kind in KINDS and t.advised is not None]
    print(f"{target.study.name}: {len(trials)} steps with a kind and a capture of their parent\n")
    if not trials:
        return 1
    head = ("advice", "the step's kind is in it", "of kept steps", "of others", "kinds named")
    named = {
        "three, by the capture alone": ours,
        "three, with the record of earlier steps": with_record,
        "the first alone": first,
    }
    print(table(head, (row(name, says, trials) for name, says in named.items())))
    for told in (by_chance, constant, always, gains, *((steps,) if asked.steps else ())):
        print(f"\n{told(trials)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
