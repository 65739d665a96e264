"""Parameters of variants and shapes, with other values than their own.

``NAME[warps=4]`` is a variant with other parameters. In ``NAME[warps=4|8,block=64..256*2]`` one
has several values, ``a|b|c``, each of which may be a range: ``lo..hi*k`` is lo, lo k, lo k², ...
and ``lo..hi+k`` is lo, lo + k, lo + 2 k, ..., both up to hi.

``--shape 'S=512..4096*2'`` makes shapes that the study does not list. A derived shape has the
parameters of the default shape, or of the one named first (``b4h16s2048d64,S=1024``), with some of
other values. One with the very parameters of a shape of the study is that shape. A study may offer
``shape_name(shape)``: it names a derived shape, and refuses one that it has no inputs for by
raising ValueError.

Unseen shapes are drawn from the ranges that ``study.py`` promises. The draw is seeded with the
variant's sources: whoever edits them gets other shapes, and a replay the same ones.
"""

from __future__ import annotations

import ast
import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from workbench import bounds
from workbench.errors import UsageError, nearest, unknown
from workbench.study.files import is_plain_name, readable_text
from workbench.study.front_ends import syntax_tree
from workbench.study.model import Step, Study, Variant
from workbench.study.sources import plain_digest
from workbench.study.users_code import users_code
from workbench.study.values import Shape, tolerance_at
from workbench.words import Parameter

_NAME = re.compile(r"([^\[\]]+)(?:\[([^\[\]]*)\])?")
_LARGEST = 2**63 - 1  # what JSON carries to the worker
_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def declared(module: Path) -> dict[str, Parameter]:
    """Read what ``params = cuda.params(...)`` of a variant declares, without importing it."""
    tree = syntax_tree(readable_text(module))  # building it says where it is no Python
    for node in tree.body if tree else ():
        names = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
        call = getattr(node, "value", None)
        if names != ["params"] or not isinstance(call, ast.Call):
            continue
        values: dict[str, Parameter] = {}
        for keyword in call.keywords:
            if keyword.arg is None:  # ``**`` of something
                continue
            value = None
            with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                value = ast.literal_eval(keyword.value)
            if type(value) not in (bool, int, float, str):
                raise UsageError(
                    f"{module}:{keyword.lineno}: the values in cuda.params(...) must be plain "
                    f"numbers or strings, which '{keyword.arg}' is not",
                    hint="compute what depends on them below, from params",
                )
            values[keyword.arg] = cast(Parameter, value)
        return values
    return {}


def value_of(name: str, text: str, like: Parameter) -> Parameter:
    """A value as it was typed, of the type of another. Raises UsageError for what is none."""
    try:
        if isinstance(like, bool):
            return _BOOLS[text.lower()]
        if not text:
            raise ValueError(text)
        value = type(like)(text)
    except (KeyError, ValueError):
        kind = type(like).__name__
        raise UsageError(f"parameter '{name}' is {kind}, not '{text}'", hint=HINT) from None
    if isinstance(value, int | float) and not (math.isfinite(value) and abs(value) <= _LARGEST):
        raise UsageError(f"parameter '{name}' cannot be '{text}'", hint="give it a finite number")
    return value


def find_variant(folder: Path, name: str, variants: Mapping[str, Variant]) -> Variant:
    """Find the variant of that name; its own values of parameters are left out of the name.

    ``variants`` are the study's: ``name`` is one of them, or one with other parameters.
    Raises UsageError naming the nearest variant or parameter.
    """
    if name in variants:
        return variants[name]
    base, defaults, axes = _read(folder, name, variants)
    if several := [key for key, values in axes.items() if len(values) > 1]:
        raise UsageError(
            f"'{several[0]}' has several values in {name}",
            hint="`workbench sweep` takes several values at once",
        )
    values = defaults | {key: first for key, (first,) in axes.items()}
    other = tuple((key, value) for key, value in values.items() if value != defaults[key])
    full = with_values(base, dict(other))
    if not is_plain_name(full):
        raise UsageError(
            f"'{full}' is no name of a file", hint="evidence is kept under it: leave out '/'"
        )
    return variants.get(full) or Variant(full, folder / f"{base}.py", params=other)


def _read(
    folder: Path, name: str, variants: Mapping[str, Variant]
) -> tuple[str, dict[str, Parameter], Axes]:
    """The variant that a name begins with, its parameters, and the values that it names."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(f"'{name}' is no variant", hint="write NAME or NAME[param=value,...]")
    base, assigned = match[1], match[2]
    if base not in {variant.module.stem for variant in variants.values()}:
        raise unknown("variant", base, variants)
    defaults = declared(folder / f"{base}.py")
    if assigned and not defaults:
        raise UsageError(
            f"{base} has no parameters", hint="a variant declares them: cuda.params(...)"
        )
    return base, defaults, read_axes(assigned, defaults, base) if assigned else {}


def with_values(base: str, values: Mapping[str, Parameter]) -> str:
    """``fix2[warps=12]``; ``fix2`` where there are none."""
    texts = {n: str(int(v)) if isinstance(v, bool) else str(v) for n, v in values.items()}
    inside = ",".join(f"{name}={text}" for name, text in texts.items())
    return f"{base}[{inside}]" if inside else base


ROOM = 1e-9  # of a step, that rounding may take
NARROW = "narrow it: give parameters fewer values"
_RANGE = re.compile(r"(?P<low>.+?)\.\.(?P<high>[^*+]+)(?P<how>[*+])(?P<by>.+)")

# Parameters to their values, in the order in which they were written, each once.
Axes = dict[str, tuple[Parameter, ...]]
HINT = "a value, a|b|c, lo..hi*k (times k) or lo..hi+k (plus k)"


def read_axes(text: str, parameters: Mapping[str, Parameter], kind: str) -> Axes:
    """``a=1|2,b=8..64*2``. ``parameters`` have values whose type theirs have, and ``kind`` says
    what they are of.

    Raises UsageError with what was typed and the part of it that is wrong.
    """
    axes: Axes = {}
    for item in text.split(","):
        key, equals, values = (part.strip() for part in item.partition("="))
        if not equals or not key:
            raise UsageError(
                f"'{item}' gives no parameter a value in '{text}'", hint="write name=" + HINT
            )
        if key not in parameters:
            raise UsageError(f"{kind} has no parameter '{key}'", hint=nearest(key, parameters))
        if key in axes:
            raise UsageError(
                f"'{key}' stands there twice in '{text}'",
                hint="give it all its values at once: a|b",
            )
        all_values = [
            v for word in values.split("|") for v in _values(key, word.strip(), parameters[key])
        ]
        axes[key] = tuple(dict.fromkeys(all_values))
    return axes


def _values(name: str, text: str, like: Parameter) -> list[Parameter]:
    if ".." not in text or isinstance(like, bool | str):
        return [value_of(name, text, like)]
    said, match = f"'{text}' of '{name}'", _RANGE.fullmatch(text)
    if match is None:
        raise UsageError(f"{said} is no range", hint="write lo..hi*k or lo..hi+k")
    parts = [value_of(name, match[bound], like) for bound in ("low", "high", "by")]
    low, high, by = (bound for bound in parts if isinstance(bound, int | float))
    geometric = match["how"] == "*"
    if low > high or ((by <= 1 or low <= 0) if geometric else by <= 0):
        raise UsageError(
            f"{said} does not grow",
            hint="the lower end first: from above 0, *k with k above 1; or +k with k above 0",
        )
    steps = math.log(high / low) / math.log(by) if geometric else (high - low) / by
    count = math.floor(steps + ROOM) + 1
    if count > bounds.RANGE_VALUES:
        raise UsageError(f"{said} has {count} values", hint=NARROW)
    return [low * by**i if geometric else low + by * i for i in range(count)]


def is_space(name: str) -> bool:
    assigned = name.partition("[")[2]
    return "|" in assigned or ".." in assigned


def expanded(folder: Path, name: str, variants: Mapping[str, Variant]) -> Axes:
    """The axes of a variant's name, those of several values and of one.

    Raises UsageError for a name that is no such, and for too many combinations.
    """
    *_, axes = _read(folder, name, variants)
    require_few(name, axes)
    return axes


def require_few(name: str, axes: Axes, hint: str = NARROW) -> None:
    """Raises UsageError for too many combinations."""
    count = math.prod(map(len, axes.values()))
    if count > (most := bounds.COMBINATIONS):
        raise UsageError(f"{name} has {count} combinations, more than {most}", hint=hint)


def combinations(axes: Axes) -> Iterator[dict[str, Parameter]]:
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def names_of(base: str, axes: Axes) -> list[str]:
    """The variants of all combinations, as ``find_variant`` reads them."""
    return [with_values(base, values) for values in combinations(axes)]


@dataclass(frozen=True)
class Picked:
    """A shape of a study, which has it among its own where it is derived."""

    study: Study
    name: str


def pick_shapes(study: Study, text: str | None) -> list[Picked]:
    """Pick the shapes that ``--shape`` names, by default the default one. Raises UsageError."""
    if not text or text in study.shapes:
        return [Picked(study, text or study.default_shape)]
    base = next((n for n in sorted(study.shapes, key=len)[::-1] if text.startswith(f"{n},")), "")
    if "=" not in text:
        raise unknown("shape", text, study.shapes)
    base = base or study.default_shape
    parameters = {name: v for name, v in study.shapes[base].items() if isinstance(v, Parameter)}
    axes = read_axes(text.removeprefix(f"{base},"), parameters, f"shape '{base}'")
    require_few(text, axes, hint="take larger steps, or fewer parameters")
    every = combinations(axes)
    return [derived(study, base, values) for values in every]


def derived(study: Study, base: str, values: Mapping[str, Parameter]) -> Picked:
    """Return a shape of the study with these parameters, listed or new. Raises UsageError."""
    base_parameters = study.shapes[base].parameters
    for name, kept in base_parameters.items():
        if type(kept) not in (bool, int, float, str):
            raise UsageError(
                f"shape '{base}' cannot be varied: its '{name}' is a {type(kept).__name__}",
                hint="the parameters of such a shape are numbers and strings",
            )
    for name, value in values.items():
        if _counts(base_parameters[name]) and not _counts(value):
            raise UsageError(f"'{name}' of a shape cannot be {value}", hint="it counts from 1")
    parameters: dict[str, Any] = {**base_parameters, **values}
    same = [n for n, s in study.shapes.items() if s.profiled and s.parameters == parameters]
    if same:
        return Picked(study, study.default_shape if study.default_shape in same else same[0])
    shape = Shape(captured=False, **parameters)
    name = _name(study, base, shape)
    with_shape = replace(
        study,
        shapes={**study.shapes, name: shape},
        derived={**study.derived, name: parameters},
    )
    with_shape.work(name)  # both fail with the file and line of what the study says of such a shape
    tolerance_at(with_shape.tolerance, shape)
    return Picked(with_shape, name)


def with_derived(study: Study, shapes: Mapping[str, dict[str, Parameter]]) -> Study:
    """The study with derived shapes by name, none of which it has itself."""
    derived = {**study.derived, **shapes}
    return replace(study, shapes={**study.shapes, **made_shapes(shapes)}, derived=derived)


def made_shapes(derived: Mapping[str, Mapping[str, Any]]) -> dict[str, Shape]:
    """Derived shapes by name: checked and timed where they are asked for, and profiled only by
    ``workbench profile``.
    """
    return {name: Shape(captured=False, **values) for name, values in derived.items()}


def _counts(value: Parameter) -> bool:
    return type(value) is int and value > 0


def _name(study: Study, base: str, shape: Shape) -> str:
    path = study.folder / "study.py"
    base_parameters = study.shapes[base].parameters
    other = [_word(key, value) for key, value in shape.items() if value != base_parameters[key]]
    name = "-".join([*([base] if base != study.default_shape else []), *other])
    if named := getattr(study.module, "shape_name", None):
        with users_code(path, f"refuses the shape {shape!r}"):
            name = named(shape)
    if not isinstance(name, str) or not name.isprintable() or not is_plain_name(name):
        raise UsageError(
            f"{name!r}, for the shape {shape!r}, is no name that a folder can have",
            hint=f"shape_name(shape) of {path} may give it another",
        )
    if name in study.shapes:
        raise UsageError(
            f"the shape {shape!r} would be called '{name}', which is another one of the study",
            hint=f"shape_name(shape) of {path} may give it another",
        )
    return name


def _word(key: str, value: Parameter) -> str:
    """``S1024``, ``causal``, ``not-causal``, ``dtype-bfloat16``."""
    if isinstance(value, bool):
        return key if value else f"not-{key}"
    return f"{key}-{value}" if isinstance(value, str) else f"{key}{value}"


DRAWN = 3
LARGEST_DRAWN = 1 << 48
ATTEMPTS = 20  # of a study whose ``shape_name`` refuses some


@dataclass(frozen=True)
class UnseenShapes:
    """``study`` has them among its shapes; ``seed`` is hexadecimal. No names without ranges.

    The first is a large one, and there times are compared: at a small one they are those of a
    launch, and say little of a kernel.
    """

    study: Study
    names: tuple[str, ...] = ()
    seed: str = ""


def ranges_of(study: Study) -> Mapping[str, range]:
    """Read ``ranges = {"rows": range(1, 8193)}`` of study.py. Raises UsageError."""
    ranges = getattr(study.module, "ranges", {})
    parameters = study.shapes[study.default_shape].parameters
    for name, values in ranges.items() if isinstance(ranges, dict) else [("ranges", ranges)]:
        ends = (values[0], values[-1]) if isinstance(values, range) and values else (0,)
        if name not in parameters or not all(1 <= end <= LARGEST_DRAWN for end in ends):
            raise UsageError(
                f"{study.folder / 'study.py'}: 'ranges' must be a dict of parameters to ranges of "
                f"whole numbers from 1 to 2^48, which '{name}' is not",
                hint='such as ranges = {"rows": range(1, 8193)}',
            )
    return ranges


def unseen_shapes(study: Study, variant: str) -> UnseenShapes:
    """Raises UsageError for ranges that are none."""
    ranges = ranges_of(study)
    if not ranges or variant not in study.variants:
        return UnseenShapes(study)
    seed = plain_digest(study, study.variants[variant])[:8]
    drawing, taken = random.Random(seed), set(study.shapes)
    names: list[str] = []
    for _ in range(ATTEMPTS):
        values = {}
        for parameter, every in sorted(ranges.items()):
            # As many small as large ones: even over the logarithm, the first over its upper half.
            low, high = sorted((every[0], every[-1]))
            least = low if names else math.sqrt(low * high)
            aimed = math.exp(drawing.uniform(math.log(least), math.log(high)))
            place = round(abs(aimed - every[0]) / abs(every.step))
            values[parameter] = every[min(len(every) - 1, place)]
        try:
            picked = derived(study, study.default_shape, values)
        except UsageError:  # the study has no inputs for it
            continue
        if picked.name not in taken:
            study, taken = picked.study, {*taken, picked.name}
            names.append(picked.name)
        if len(names) == DRAWN:
            break
    return UnseenShapes(study, tuple(names), seed)


def profiled_shapes(study: Study, shape: str | None) -> list[Picked]:
    """Return those that ``--shape`` names: one, or those of a range."""
    picked = pick_shapes(study, shape)
    for each in picked:
        shapes = each.study.shapes
        if not shapes[each.name].profiled:
            raise UsageError(
                f"shape '{each.name}' is checked but not profiled",
                hint=f"use one of {', '.join(s for s in shapes if shapes[s].profiled)}",
            )
    return picked


def profiled_shape(study: Study, shape: str | None) -> Picked:
    """Raises UsageError for a range of shapes as well."""
    picked = profiled_shapes(study, shape)
    if len(picked) > 1:
        raise UsageError(
            f"--shape '{shape}' names {len(picked)} shapes, and this command takes one",
            hint="check and sweep take a range; here give each parameter one value",
        )
    return picked[0]


def including(study: Study, names: list[str]) -> tuple[Study, list[str]]:
    """The study with variants such as ``fix2[warps=12]``, and the names as it has them.

    One that is not in ``ablation.toml`` becomes a step on the variant that it is of.
    Raises UsageError for what is no variant.
    """
    variants, steps = dict(study.variants), list(study.ladder.steps)
    full_names = []
    for name in names:
        variant = find_variant(study.folder, name, variants)
        full_names.append(variant.name)
        if variant.name in variants:
            continue
        parent = variant.module.stem
        if parent in study.variants and study.ladder.step(parent) is not None:
            change = ", ".join(f"{key} = {value}" for key, value in variant.params)
            steps.append(Step(variant.name, parent, change))
        variants[variant.name] = variant
    ladder = replace(study.ladder, steps=tuple(steps))
    return replace(study, variants=variants, ladder=ladder), full_names
