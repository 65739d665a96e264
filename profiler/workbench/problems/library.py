"""A compiled library with functions of TVM FFI: ``built.so:FUNCTION``, with inputs and ``--vs``."""

from __future__ import annotations

import re
from pathlib import Path

from workbench import bounds
from workbench.errors import UsageError
from workbench.problems import try_options
from workbench.problems.problem import Format, Problem, Request, calling
from workbench.problems.user_files import one_of
from workbench.study.files import require_readable

EXPORTED = re.compile(rb"\0__tvm_ffi_(?!_)(\w+)(?=\0)")


def functions_of(path: Path) -> list[str]:
    """The functions that a library exports, without loading it."""
    if not re.search(r"\.so(\.\d+)*$", path.name):
        return []
    require_readable(path, bounds.BESIDE)
    return sorted({name.decode() for name in EXPORTED.findall(path.read_bytes())})


def read_library(request: Request) -> Problem:
    """Raises UsageError where the function, its inputs or a reference is not named."""
    path, names = request.source, functions_of(request.source)
    function = one_of(path, "function", names, request.function)
    made = [try_options.read_input(text) for text in request.inputs]
    if not made or not request.versus:
        raise UsageError(
            f"{path.name} needs --input for what {function} takes, in order, its outputs among "
            "them, and --vs",
            hint="--input 'x=randn(4096)' --input 'out=zeros(4096)' --vs FILE.py:FUNCTION, of x",
        )
    problem = Problem(
        what=f"{path.name}, {FORMAT.label}: its function {function}",
        name=function,
        title=f"{function} of {path.name}",
        files={path.name: path.read_bytes()},
        shapes=try_options.asked_shape(made),
        made=try_options.made_text(made),
        baseline=calling(
            f"{path.name}:{function}",
            f'_given = given.Library(__file__, "{path.name}")',
            f"given.call(_given.{function}, inputs)",
        ),
    )
    return try_options.with_references(problem, request)


FORMAT = Format(
    label="a library of TVM FFI",
    files=".so",
    priority=10,
    is_of=lambda request: bool(functions_of(request.source)),
    read=read_library,
    options=frozenset({"inputs"}),
)
