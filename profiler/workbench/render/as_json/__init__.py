"""What the verbs print under ``--json``; docs/json.md says what the names mean."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from workbench.words import SCHEMA_VERSION


def plain_data(value: Any) -> Any:
    """Records as objects, sequences as lists; what is no number is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, msgspec.Struct):
        return plain_data(msgspec.to_builtins(value))
    if is_dataclass(value):
        return plain_data(_as_form(value))
    if isinstance(value, Mapping):
        return {key: plain_data(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(each) for each in value]
    return value


def _as_form(value: Any) -> Mapping[str, Any]:
    """A record by its declaration, else with all of its fields."""
    from workbench.render.as_json.forms import FORMS

    form = FORMS.get(type(value))
    return form(value) if form else {f.name: getattr(value, f.name) for f in fields(value)}


def dumps(data: Mapping[str, Any]) -> str:
    """One object with its ``schema_version``; never NaN."""
    whole = {"schema_version": SCHEMA_VERSION, **data}
    return json.dumps(plain_data(whole), indent=1, allow_nan=False)
