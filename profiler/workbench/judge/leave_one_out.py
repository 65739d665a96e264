"""What each switch of a variant is worth at the end, and what it was when it came. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.derive.speedup import Ratio, Time
from workbench.judge.evaluate import standing
from workbench.judge.findings import Finding
from workbench.judge.known_evidence import ShapeEvidence, ShapeTimes, main_timing
from workbench.judge.sessions import warnings_of
from workbench.study.model import Step, Variant
from workbench.study.params import base_name
from workbench.words import Origin, Parameter, shown


@dataclass(frozen=True)
class Switch:
    """A parameter with its value in a variant, and the ``default`` that puts it back in
    ``without``. ``step`` is the first of the ladder that changed nothing else in its ``parent``, or
    "".
    """

    name: str
    value: Parameter
    default: Parameter
    without: str
    step: str = ""
    parent: str = ""


@dataclass(frozen=True)
class Worth:
    """How many times faster with the switch than without (``at_the_end``), and its step than the
    step's parent (``when_it_came``), in the same sessions; ``why`` there is no time without it.
    """

    switch: Switch
    microseconds: Time | None = None
    at_the_end: Ratio | None = None
    when_it_came: Ratio | None = None
    why: Finding | None = None


@dataclass(frozen=True)
class LeftOut:
    """``together`` is how many times faster the variant is than ``base``, with all put back."""

    study: str
    shape: str
    gpu: str
    variant: str
    base: str
    microseconds: Time | None
    switches: tuple[Worth, ...]
    together: Ratio | None
    evidence: Origin
    sessions: int = 0
    why: Finding | None = None
    warnings: tuple[Finding, ...] = ()

    @property
    @shown
    def product(self) -> float | None:
        """Of what all are worth at the end: ``together``, were each independent of the others."""
        known = [w.at_the_end.ratio for w in self.switches if w.at_the_end]
        return math.prod(known) if len(known) == len(self.switches) else None


def introduced_by(
    name: str, value: Parameter, base: str, steps: Sequence[Step], variants: Mapping[str, Variant]
) -> tuple[str, str]:
    """The first step that gives a parameter of ``base`` that value and changes nothing else, and
    its parent; "" for both where there is none.
    """
    for step in steps:
        if step.parent is None or {base_name(step.variant), base_name(step.parent)} != {base}:
            continue
        before, after = (dict(variants[v].params) for v in (step.parent, step.variant))
        if name not in before and after == {**before, name: value}:
            return step.variant, step.parent
    return "", ""


def judge_left_out(
    evidence: ShapeEvidence,
    variant: str,
    base: str,
    switches: Sequence[Switch],
    *,
    study: str,
    gpu: str,
    source: Origin,
    reference: str = "",
) -> LeftOut:
    """By the one timing that has the most of them."""
    names = names_of(variant, base, switches)
    timing = main_timing(evidence, names)
    times = ShapeTimes(evidence, timing)
    held = timing.chained if timing else frozenset()

    def ratio(before: str, after: str) -> Ratio | None:
        return times.ratio(before, after) if {before, after} <= held else None

    def worth(switch: Switch) -> Worth:
        there = switch.without in held and evidence.variants[switch.without].correct
        return Worth(
            switch=switch,
            microseconds=times.time(switch.without) if there else None,
            at_the_end=ratio(switch.without, variant),
            when_it_came=ratio(switch.parent, switch.step) if switch.step else None,
            why=None if there else why_not(evidence, switch.without),
        )

    own = times.time(variant) if variant in held else None
    return LeftOut(
        study=study,
        shape=evidence.shape,
        gpu=gpu,
        variant=variant,
        base=base,
        microseconds=own,
        switches=tuple(map(worth, switches)),
        together=ratio(base, variant),
        evidence=source,
        sessions=own.sessions if own else 0,
        why=None if own else why_not(evidence, variant),
        warnings=tuple(warnings_of({evidence.shape: timing}, reference)),
    )


def why_not(evidence: ShapeEvidence, variant: str) -> Finding:
    """Why a variant has no time."""
    _, problem = standing(evidence.variants[variant], evidence.shape)
    return problem or Finding("untimed.not_beside")


def names_of(variant: str, base: str, switches: Sequence[Switch]) -> list[str]:
    """All that is timed together."""
    parts = [name for s in switches for name in (s.without, s.parent, s.step)]
    return list(dict.fromkeys(name for name in (variant, base, *parts) if name))
