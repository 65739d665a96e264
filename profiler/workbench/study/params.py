"""``NAME[warps=4,block=64]``: a variant with other values of its parameters than its own.

In ``NAME[warps=4|8,block=64..256*2]`` a parameter has several values, ``a|b|c``, each of which may
be a range: ``lo..hi*k`` is lo, lo k, lo k², ... and ``lo..hi+k`` is lo, lo + k, lo + 2 k, ..., both
up to hi.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from workbench.errors import UsageError, unknown
from workbench.study.model import Variant
from workbench.study.text import is_plain_name, readable_text
from workbench.words import Parameter

_NAME = re.compile(r"([^\[\]]+)(?:\[([^\[\]]*)\])?")
_LARGEST = 2**63 - 1  # what JSON carries to the worker
_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def base_name(name: str) -> str:
    """``fix2`` of ``fix2[warps=12]``."""
    return name.partition("[")[0]


def declared(module: Path) -> dict[str, Parameter]:
    """What ``params = cuda.params(...)`` of a variant declares, read without importing it."""
    try:
        tree = ast.parse(readable_text(module))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}  # building it says so, with the line
    for node in tree.body:
        names = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
        call = getattr(node, "value", None)
        if names != ["params"] or not isinstance(call, ast.Call):
            continue
        return {k.arg: _literal(module, k) for k in call.keywords if k.arg}
    return {}


def _literal(module: Path, keyword: ast.keyword) -> Parameter:
    try:
        value = ast.literal_eval(keyword.value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        value = None
    if type(value) in (bool, int, float, str):
        return cast(Parameter, value)
    raise UsageError(
        f"{module}:{keyword.lineno}: the values in cuda.params(...) must be plain numbers or "
        f"strings, which '{keyword.arg}' is not",
        hint="compute what depends on them below, from params",
    )


def value_of(name: str, text: str, like: Parameter) -> Parameter:
    """A value as it was typed, of the type of another. Raises UsageError for what is none."""
    try:
        if isinstance(like, bool):
            return _BOOLS[text.lower()]
        value = type(like)(text)
    except (KeyError, ValueError):
        kind = type(like).__name__
        several = "|" in text or ".." in text
        raise UsageError(
            f"parameter '{name}' is {kind}, not '{text}'",
            hint="`workbench sweep` takes several values at once" if several else "",
        ) from None
    if isinstance(value, int | float) and not (math.isfinite(value) and abs(value) <= _LARGEST):
        raise UsageError(f"parameter '{name}' cannot be '{text}'", hint="give it a finite number")
    return value


def find_variant(folder: Path, name: str, known: Mapping[str, Variant]) -> Variant:
    """The variant of that name; its own values of parameters are left out of the name.

    ``known`` are the study's variants: ``name`` is one of them, or one with other parameters.
    Raises UsageError naming the nearest variant or parameter.
    """
    if name in known:
        return known[name]
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(f"'{name}' is no variant", hint="write NAME or NAME[param=value,...]")
    base, given = match[1], match[2]
    if base not in {base_name(k) for k in known}:
        raise unknown("variant", base, known)
    module = folder / f"{base}.py"
    own = declared(module)
    values = dict(own)
    for item in filter(None, (given or "").split(",")):
        key, equals, text = (part.strip() for part in item.partition("="))
        if not equals:
            raise UsageError(f"'{item}' in {name}", hint="write NAME[param=value,...]")
        if key not in own:
            if not own:
                raise UsageError(
                    f"{base} has no parameters", hint="a variant declares them: cuda.params(...)"
                )
            raise unknown("parameter", key, own)
        values[key] = value_of(key, text, own[key])
    other = tuple((key, value) for key, value in values.items() if value != own[key])
    full = with_values(base, dict(other))
    if not is_plain_name(full):
        raise UsageError(
            f"'{full}' is no name of a file", hint="evidence is kept under it: leave out '/'"
        )
    return known.get(full) or Variant(full, module, params=other)


def with_values(base: str, values: Mapping[str, Parameter]) -> str:
    """``fix2[warps=12]``; ``fix2`` where there are none."""
    return f"{base}[{','.join(f'{k}={_text(v)}' for k, v in values.items())}]" if values else base


def _text(value: Parameter) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
