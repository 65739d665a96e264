"""``--shape 'S=512..4096*2'``: shapes that the study does not list, made from one that it does.

A derived shape has the parameters of the default shape, or of the one named first
(``b4h16s2048d64,S=1024``), with some of other values. One with the very parameters of a shape of
the study is that shape. A study may offer ``shape_name(shape)``: it names a derived shape, and
refuses one that it has no inputs for by raising ValueError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from workbench.errors import UsageError, unknown
from workbench.study.model import Shape, Study, tolerance_at
from workbench.study.params import Axis, combinations, read_axes, require_few
from workbench.study.text import is_plain_name
from workbench.study.users_code import users_code
from workbench.words import Parameter


@dataclass(frozen=True)
class Picked:
    """A shape of a study, which has it among its own where it is derived."""

    study: Study
    name: str


def pick_shapes(study: Study, text: str | None) -> tuple[list[Picked], tuple[Axis, ...]]:
    """Those that ``--shape`` names, and what varies among them; the default one where nothing is
    said. Raises UsageError for what is no shape.
    """
    if not text or text in study.shapes:
        return [Picked(study, text or study.default_shape)], ()
    base = next((n for n in sorted(study.shapes, key=len)[::-1] if text.startswith(f"{n},")), "")
    if "=" not in text:
        raise unknown("shape", text, study.shapes)
    base = base or study.default_shape
    own = {name: v for name, v in study.shapes[base].items() if isinstance(v, Parameter)}
    axes = read_axes(text.removeprefix(f"{base},"), own, f"shape '{base}'")
    require_few(text, axes, hint="take larger steps, or fewer parameters")
    return [derived(study, base, values) for values in combinations(axes)], axes


def derived(study: Study, base: str, values: Mapping[str, Parameter]) -> Picked:
    """A shape of the study with these parameters, or one more of it. Raises UsageError for what
    cannot be one.
    """
    own = study.shapes[base].parameters
    for name, kept in own.items():
        if type(kept) not in (bool, int, float, str):
            raise UsageError(
                f"shape '{base}' cannot be varied: its '{name}' is a {type(kept).__name__}",
                hint="the parameters of such a shape are numbers and strings",
            )
    for name, value in values.items():
        if _counts(own[name]) and not _counts(value):
            raise UsageError(f"'{name}' of a shape cannot be {value}", hint="it counts from 1")
    parameters = {**own, **values}
    same = [n for n, s in study.shapes.items() if s.profiled and s.parameters == parameters]
    if same:
        return Picked(study, study.default_shape if study.default_shape in same else same[0])
    shape = _made(parameters)
    name = _name(study, base, shape)
    found = with_derived(study, {name: parameters})
    found.work(name)  # both fail with the file and line of what the study says of such a shape
    tolerance_at(found.tolerance, shape)
    return Picked(found, name)


def with_derived(study: Study, shapes: Mapping[str, Mapping[str, Parameter]]) -> Study:
    """The study with derived shapes by name, none of which it has itself."""
    made = {name: _made(parameters) for name, parameters in shapes.items()}
    return replace(
        study, shapes={**study.shapes, **made}, derived=frozenset({*study.derived, *made})
    )


def parameters_of_derived(study: Study) -> dict[str, dict[str, Parameter]]:
    """Those of the derived shapes of a study, by name: what a worker has to be told."""
    return {name: study.shapes[name].parameters for name in sorted(study.derived)}


def add_shapes(shapes: dict[str, Shape], derived: Mapping[str, Mapping[str, Parameter]]) -> None:
    """To those of a ``study.py`` that a worker has imported."""
    shapes.update({name: _made(values) for name, values in derived.items()})


def _made(parameters: Mapping[str, Any]) -> Shape:
    """Checked and timed where it is asked for, and profiled only by ``workbench profile``."""
    return Shape(captured=False, **parameters)


def _counts(value: Parameter) -> bool:
    return type(value) is int and value > 0


def _name(study: Study, base: str, shape: Shape) -> str:
    path = study.folder / "study.py"
    own = study.shapes[base].parameters
    other = [_word(key, value) for key, value in shape.items() if value != own[key]]
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
