"""What was learned as data: techniques, their steps, and every place where these were timed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from workbench.judge.lessons import Lesson, Place, Technique
from workbench.render.as_json import ladder, plain_data

Data = dict[str, Any]


def techniques(found: Iterable[Technique], left_out: Iterable[Lesson] = ()) -> Data:
    """Of ``workbench lessons``; ``left_out`` are steps without current evidence."""
    return {
        "techniques": [_technique(each) for each in found],
        "left_out": [
            {"study": each.study, "variant": each.row.variant, "status": each.row.status}
            for each in left_out
        ],
    }


def _technique(found: Technique) -> Data:
    return {
        "id": found.change,
        "title": found.kind.title,
        "how": found.kind.how,
        "steps": [_step(each) for each in found.lessons],
    }


def _step(lesson: Lesson) -> Data:
    pair = lesson.row.against_parent
    return {
        "study": lesson.study,
        "gpu": lesson.gpu,
        "variant": lesson.row.variant,
        "parent": lesson.step.parent,
        "key_change": lesson.step.key_change,
        "lesson": lesson.step.lesson.strip() or None,
        "shape": lesson.shape,
        "parameters": lesson.parameters,
        "status": lesson.row.status,
        "problem": lesson.row.problem,
        "verdict": lesson.row.verdict,
        "places": [_place(each) for each in lesson.places],
        "against_parent": ladder.comparison(pair),
        "predictions": plain_data(lesson.row.predictions),
    }


def _place(place: Place) -> Data:
    return {
        "shape": place.shape,
        "regime": place.regime,
        "speedup": plain_data(place.ratio),
        "verdict": place.verdict,
    }
