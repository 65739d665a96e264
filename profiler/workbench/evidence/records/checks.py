"""How variants stand beside the reference, and shapes that the study does not list."""

from __future__ import annotations

from typing import Any

import msgspec

from workbench.evidence.records.base import Number, Provenance, Record, without_defaults
from workbench.words import CheckResult, Parameter


class Check(Record, frozen=True, kw_only=True):
    """A variant against the float64 reference at one shape; errors are None where it has none.

    ``times_reference`` is the worst error as a multiple of the primary reference's error on the
    same inputs, and ``kind`` the kind of inputs that it comes from: empty for the plain ones.
    ``varies``: the same inputs gave other bits. ``output`` is the one of several that decided, and
    ``hint`` the way out of what is wrong; they are not written where there is nothing to say.
    """

    status: CheckResult
    why: str = ""
    max_abs: Number | None = None
    relative: Number | None = None
    fingerprint: str
    times_reference: Number | None = None
    kind: str = ""
    varies: bool = False
    output: str | msgspec.UnsetType = msgspec.UNSET
    hint: str | msgspec.UnsetType = msgspec.UNSET


class Checks(Record, frozen=True, kw_only=True):
    """``checks/<variant>.json``: the checks of one variant by shape."""

    variant: str
    shapes: dict[str, Check]
    provenance: Provenance

    def written(self, content: dict[str, Any]) -> dict[str, Any]:
        shapes = {name: without_defaults(each, Check) for name, each in content["shapes"].items()}
        return {**content, "shapes": shapes}


class DerivedShape(Record, frozen=True, kw_only=True):
    """``<shape>/shape.json``: the parameters of a shape that the study does not list."""

    shape: str
    parameters: dict[str, Parameter]
