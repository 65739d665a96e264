"""A problem in anybody's format as what a study is written from. Plain values.

The one module that a format in another package imports: its names and fields stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbench.errors import UsageError, nearest
from workbench.study.files import resolved, stands
from workbench.words import Parameter

STUDY_FILE = "study.py"
DEFAULT_SHAPE = "given"


@dataclass(frozen=True)
class Module:
    """A variant to be written: the text of its module. ``called`` is the user's own name of it.

    ``loads`` and ``expression`` are what ``calling`` made the text of. A reference may have no
    ``name``: it gets one after what it is called. It brings ``files`` along, and the expression of
    its inputs is ``made``, where it gives them.
    """

    name: str
    called: str
    text: str
    loads: str = ""
    expression: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
    made: str = ""


def calling(called: str, loads: str, expression: str, name: str = "baseline") -> Module:
    """``loads`` are lines of the module, ``expression`` the call of the dict ``inputs`` then."""
    text = f"{loads}\n\n\ndef run(**inputs):\n    return {expression}\n"
    return Module(name, called, text, loads, expression)


@dataclass(frozen=True)
class GivenShape:
    """``timed``: not only checked."""

    parameters: Mapping[str, Parameter]
    timed: bool = True

    @property
    def size(self) -> float:
        return math.prod(v for v in self.parameters.values() if type(v) is int)


def largest(shapes: Mapping[str, GivenShape], most: int) -> tuple[dict[str, GivenShape], str]:
    """The ``most`` largest in the order that they have, and the name of the largest."""
    names = sorted(shapes, key=lambda name: shapes[name].size, reverse=True)[:most]
    return {name: shape for name, shape in shapes.items() if name in names}, names[0]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The parts of a study that a user's files give.

    ``files`` are copied beside ``study.py``, by name; ``what`` tells them apart from other formats
    in the first line of the output. ``made`` is an expression for the inputs, a dict by name, of
    ``shape`` and ``generator``. ``expression`` is one for the reference, of the dict ``inputs``,
    and ``exact`` another for it in double precision, "" where the first takes doubles; ``accepts``
    one for the format's own check of ``inputs`` and ``out``, "" where it has none. ``loads`` are
    lines of ``study.py`` that these need.

    ``against`` is what the reference is called. ``itself``: nothing was named to compare with, and
    the reference is the baseline in float64. ``kind`` is the label of the format, which need not
    give it. ``compiles``: the baseline has kernels that compile without a GPU. ``ranges``: the
    references may do other work than the baseline, and those that do are left out.
    """

    what: str
    name: str
    title: str
    files: Mapping[str, bytes]
    made: str
    baseline: Module
    loads: str = ""
    expression: str = ""
    shapes: Mapping[str, GivenShape] = field(
        default_factory=lambda: {DEFAULT_SHAPE: GivenShape({})}
    )
    default_shape: str = DEFAULT_SHAPE
    kind: str = ""
    references: tuple[Module, ...] = ()
    exact: str = ""
    accepts: str = ""
    against: str = ""
    itself: bool = False
    compiles: bool = False
    ranges: bool = False


@dataclass(frozen=True)
class Request:
    """``source`` with the ``function`` in it that was named, and the options as they were given.

    ``arguments``: of a script. ``name``: of the study to be made, "" for one after the source.
    ``elsewhere``: it is called on another machine, with the packages of that one.
    """

    source: Path
    function: str = ""
    arguments: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    versus: str = ""
    launch: str = ""
    solution: Path | None = None
    workload: Path | None = None
    range: str = ""
    shape: str = ""
    name: str = ""
    elsewhere: bool = False


@dataclass(frozen=True)
class Format:
    """A format that ``workbench try`` reads. A package adds one by an entry point of the group
    ``workbench.problems`` whose object is a ``Format``.

    ``label`` with its article, and ``files`` that it is found in, are for messages. Of the formats
    whose ``is_of`` accepts a request the one with the highest ``priority`` reads it: built-in
    formats that know their files by the content have 40 to 60, by the ending alone 10. ``options``
    are those fields of a request that it reads besides ``source``, ``function`` and ``versus``.
    ``read`` raises UsageError for what is wrong in the files. ``package`` is filled in when an
    entry point is loaded.
    """

    label: str
    files: str
    priority: int
    is_of: Callable[[Request], bool]
    read: Callable[[Request], Problem]
    options: frozenset[str] = frozenset()
    package: str = ""


def split(source: str) -> tuple[Path, str]:
    """``FILE:FUNCTION``: a colon in the path itself is one only where no such file stands."""
    path = Path(source)
    file, colon, function = source.rpartition(":")
    if colon and not stands(path):
        return Path(file), function
    return path, ""


def require(path: Path, what: str = "file or folder") -> Path:
    """Raises UsageError where nothing of that name stands."""
    if stands(path):
        return resolved(path)
    folder = path.parent
    beside = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    bare = f"the folder {resolved(folder)} is {'empty' if folder.is_dir() else 'not there'}"
    hint = nearest(path.name, beside) if beside else bare
    raise UsageError(f"there is no {what} {path}", hint=hint)
