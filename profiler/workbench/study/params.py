"""``NAME[param=value,...]``: a variant with other values of its parameters than its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

from workbench.errors import UsageError, unknown
from workbench.study.model import Variant
from workbench.words import Parameter

_NAME = re.compile(r"([^\[\]]+)(?:\[([^\[\]]*)\])?")
_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def base_name(name: str) -> str:
    """``fix2`` of ``fix2[warps=12]``."""
    return name.partition("[")[0]


def declared(module: Path) -> dict[str, Parameter]:
    """What ``params = cuda.params(...)`` of a variant declares, read without importing it."""
    try:
        tree = ast.parse(module.read_text(encoding="utf-8"))
    except SyntaxError:
        return {}  # building it says so, with the line
    for node in tree.body:
        names = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
        call = getattr(node, "value", None)
        if names != ["params"] or not isinstance(call, ast.Call):
            continue
        try:
            return {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg}
        except ValueError:
            raise UsageError(
                f"{module}: the values in cuda.params(...) must be plain numbers or strings"
            ) from None
    return {}


def _value(name: str, text: str, like: Parameter) -> Parameter:
    try:
        if isinstance(like, bool):
            return _BOOLS[text.lower()]
        return type(like)(text)
    except (KeyError, ValueError):
        kind = type(like).__name__
        raise UsageError(f"parameter '{name}' is {kind}, not '{text}'") from None


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
        values[key] = _value(key, text, own[key])
    other = tuple((key, value) for key, value in values.items() if value != own[key])
    full = f"{base}[{','.join(f'{k}={_text(v)}' for k, v in other)}]" if other else base
    return known.get(full) or Variant(full, module, params=other)


def _text(value: Parameter) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
