"""Which steps stand in the ladder of which shape. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.study.model import Step


def shapes_of(steps: Sequence[Step], table: str) -> list[str]:
    """Every shape at which some step is judged; that of the table first."""
    return list(dict.fromkeys([table, *(step.shape for step in steps if step.shape)]))


def asked_for(steps: Sequence[Step], names: Sequence[str], shape: str) -> list[Step]:
    """The baseline, the steps named, and those at this shape that start from one of them."""
    return [
        step
        for step in steps
        if step is steps[0]
        or step.variant in names
        or (step.parent in names and (step.shape or shape) == shape)
    ]


def judged_at(steps: Sequence[Step], shape: str, table: str) -> list[Step]:
    """Steps judged at a shape; one without a shape of its own is judged at the table's."""
    return [step for step in steps if (step.shape or table) == shape]


def shown_at(steps: Sequence[Step], shape: str, table: str) -> list[Step]:
    """Steps judged at a shape and those that they start from, in the order of the ladder."""
    judged = judged_at(steps, shape, table)
    names = {step.variant for step in judged} | {step.parent for step in judged}
    return [step for step in steps if step.variant in names]
