"""``NAME[warps=4,block=64]``: a variant with other values of its parameters than its own.

In ``NAME[warps=4|8,block=64..256*2]`` a parameter has several values, ``a|b|c``, each of which may
be a range: ``lo..hi*k`` is lo, lo k, lo k², ... and ``lo..hi+k`` is lo, lo + k, lo + 2 k, ..., both
up to hi.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from workbench.errors import UsageError, nearest, unknown
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
        raise UsageError(f"parameter '{name}' is {kind}, not '{text}'") from None
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
    base, module, own, axes = _read(folder, name, known)
    if several := [axis.name for axis in axes if len(axis.values) > 1]:
        raise UsageError(
            f"'{several[0]}' has several values in {name}",
            hint="`workbench sweep` takes several values at once",
        )
    values = own | {axis.name: axis.values[0] for axis in axes}
    other = tuple((key, value) for key, value in values.items() if value != own[key])
    full = with_values(base, dict(other))
    if not is_plain_name(full):
        raise UsageError(
            f"'{full}' is no name of a file", hint="evidence is kept under it: leave out '/'"
        )
    return known.get(full) or Variant(full, module, params=other)


def _read(
    folder: Path, name: str, known: Mapping[str, Variant]
) -> tuple[str, Path, dict[str, Parameter], tuple[Axis, ...]]:
    """The variant that a name begins with, its module and parameters, and the values named."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(f"'{name}' is no variant", hint="write NAME or NAME[param=value,...]")
    base, given = match[1], match[2]
    if base not in {base_name(k) for k in known}:
        raise unknown("variant", base, known)
    module = folder / f"{base}.py"
    own = declared(module)
    if given and not own:
        raise UsageError(
            f"{base} has no parameters", hint="a variant declares them: cuda.params(...)"
        )
    return (
        base,
        module,
        own,
        read_axes(Part(name, len(base) + 1, given), own, base) if given else (),
    )


def with_values(base: str, values: Mapping[str, Parameter]) -> str:
    """``fix2[warps=12]``; ``fix2`` where there are none."""
    return f"{base}[{','.join(f'{k}={_text(v)}' for k, v in values.items())}]" if values else base


def _text(value: Parameter) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


MOST = 200  # combinations: each is built, checked and timed beside all others
MOST_STEPS = 10_000  # of one range, so that a slip is told and not counted out
ROOM = 1e-9  # of a step, that rounding may take
NARROW = "narrow it: give parameters fewer values"
_RANGE = re.compile(r"(?P<low>.+?)\.\.(?P<high>[^*+]*?)(?:(?P<how>[*+])(?P<by>.*))?")


@dataclass(frozen=True)
class Axis:
    """A parameter and its values, in the order in which they were written, each once."""

    name: str
    values: tuple[Parameter, ...]


@dataclass(frozen=True)
class Part:
    """A piece of what was typed, and where in it: what a mistake is shown in."""

    whole: str
    start: int
    text: str

    def split(self, by: str) -> Iterator[Part]:
        at = self.start
        for text in self.text.split(by):
            yield Part(self.whole, at, text)
            at += len(text) + len(by)

    @property
    def stripped(self) -> Part:
        lead = len(self.text) - len(self.text.lstrip())
        return Part(self.whole, self.start + lead, self.text.strip())

    def wrong(self, why: str, hint: str) -> UsageError:
        """With what was typed on a line of its own, and the mistake marked below it."""
        marks = " " * self.start + "^" * max(1, len(self.text))
        return UsageError(f"{why}\n  {self.whole}\n  {marks}", hint=hint)


HINT = "a value, a|b|c, lo..hi*k (times k) or lo..hi+k (plus k)"


def read_axes(part: Part, known: Mapping[str, Parameter], kind: str) -> tuple[Axis, ...]:
    """``a=1|2,b=8..64*2``. ``known`` are the parameters with values whose type theirs have; their
    names may be written in other letters, large or small. ``kind`` says what they are of.

    Raises UsageError with the place of the mistake.
    """
    axes: dict[str, Axis] = {}
    for item in part.split(","):
        name, equals, _ = item.text.partition("=")
        key = Part(item.whole, item.start, name).stripped
        if not equals or not key.text:
            raise item.wrong(f"'{item.text}' gives no parameter a value", "write name=" + HINT)
        exact = _named(key, known, kind)
        if exact in axes:
            raise key.wrong(f"'{exact}' stands there twice", "give it all its values at once: a|b")
        values = Part(item.whole, item.start + len(name) + 1, item.text[len(name) + 1 :])
        found = [v for each in values.split("|") for v in _values(exact, each, known[exact])]
        axes[exact] = Axis(exact, tuple(dict.fromkeys(found)))
    return tuple(axes.values())


def _named(key: Part, known: Mapping[str, Parameter], kind: str) -> str:
    if key.text in known:
        return key.text
    alike = [name for name in known if name.lower() == key.text.lower()]
    if len(alike) == 1:
        return alike[0]
    raise key.wrong(f"{kind} has no parameter '{key.text}'", nearest(key.text, alike or known))


def _values(name: str, part: Part, like: Parameter) -> list[Parameter]:
    part = part.stripped
    if not part.text:
        raise part.wrong(f"'{name}' has no value here", HINT)
    if ".." not in part.text or isinstance(like, bool | str):
        return [_value(name, part, like)]
    match = _RANGE.fullmatch(part.text)
    if match is None or not match["high"]:
        raise part.wrong(f"'{part.text}' is no range", "write lo..hi*k or lo..hi+k")
    if not match["by"]:
        raise part.wrong(
            f"the range '{part.text}' does not say its step",
            f"write {match['low']}..{match['high']}*2 or {match['low']}..{match['high']}+1",
        )
    ends = [_number(name, part, match, group, like) for group in ("low", "high", "by")]
    return _ranged(part, *ends, geometric=match["how"] == "*")


def _number(
    name: str, part: Part, match: re.Match[str], group: str, like: Parameter
) -> int | float:
    piece = Part(part.whole, part.start + match.start(group), match[group])
    value = _value(name, piece, like)
    assert isinstance(value, int | float)
    return value


def _ranged(
    part: Part, low: int | float, high: int | float, by: int | float, *, geometric: bool
) -> list[Parameter]:
    if low > high:
        raise part.wrong(f"the range '{part.text}' ends before it begins", "the lower end first")
    if geometric and (by <= 1 or low <= 0):
        raise part.wrong(
            f"'{part.text}' does not grow", "from above 0, by a factor above 1: 2..16*2"
        )
    if not geometric and by <= 0:
        raise part.wrong(f"'{part.text}' does not grow", "by a step above 0: 2..16+2")
    steps = math.log(high / low) / math.log(by) if geometric else (high - low) / by
    count = math.floor(steps + ROOM) + 1
    if count > MOST_STEPS:
        raise part.wrong(f"'{part.text}' has {count} values", NARROW)
    return [low * by**i if geometric else low + by * i for i in range(count)]


def _value(name: str, part: Part, like: Parameter) -> Parameter:
    try:
        return value_of(name, part.text, like)
    except UsageError as error:
        raise part.wrong(error.message, error.hint or HINT) from None


def is_space(name: str) -> bool:
    """Whether a name of a variant has a parameter with several values."""
    given = name.partition("[")[2]
    return "|" in given or ".." in given


def expanded(folder: Path, name: str, known: Mapping[str, Variant]) -> tuple[Axis, ...]:
    """The axes of a variant's name, those of several values and of one.

    Raises UsageError for a name that is no such, and for more than ``MOST`` combinations.
    """
    *_, axes = _read(folder, name, known)
    require_few(name, axes)
    return axes


def require_few(name: str, axes: tuple[Axis, ...], hint: str = NARROW) -> None:
    """Raises UsageError for more than ``MOST`` combinations."""
    count = math.prod(len(axis.values) for axis in axes)
    if count > MOST:
        raise UsageError(f"{name} has {count} combinations, more than {MOST}", hint=hint)


def combinations(axes: tuple[Axis, ...]) -> Iterator[dict[str, Parameter]]:
    """All of them, the last axis fastest."""
    for values in itertools.product(*(axis.values for axis in axes)):
        yield dict(zip((axis.name for axis in axes), values, strict=True))


def names_of(base: str, axes: tuple[Axis, ...]) -> list[str]:
    """The variants of all combinations, as ``find_variant`` reads them."""
    return [with_values(base, values) for values in combinations(axes)]
