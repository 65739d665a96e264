"""Events and errors that a worker reports to its parent (``run.protocol``).

Errors in the code of a newcomer name the user's own line and a way out: front ends report them at
the end of sixty lines of their own.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from workbench.errors import EnvironmentLacks, GateFailed, WorkbenchError
from workbench.ncu.places import lasting_name
from workbench.run.protocol import CURRENT, EVENTS, Broken, ErrorText, Event, Failed, encode
from workbench.study.front_ends import how_to_install, package_of
from workbench.words import VIRTUAL_ROOT, Phase

NAME_BYTES = 256


class EventLog:
    """Events as they finish, and the name of whoever has the GPU right now."""

    def __init__(self, folder: Path) -> None:
        self._events = (folder / EVENTS).open("ab")
        self._current = os.open(folder / CURRENT, os.O_CREAT | os.O_WRONLY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._events.close()
        os.close(self._current)

    def write(self, event: Event) -> None:
        self._events.write(encode(event))
        self._events.flush()

    def fail(self, variant: str, phase: Phase, error: BaseException) -> None:
        """Record why a variant is out; leave the process when it took the CUDA context along."""
        self.write(Failed(variant=variant, phase=phase, error=describe(error)))
        if "torch" in sys.modules:
            from workbench.run.worker import device

            if device.context_lost():
                os._exit(1)

    def current(self, name: str) -> None:
        os.pwrite(self._current, name.ljust(NAME_BYTES).encode(), 0)


@contextmanager
def or_broken(journal: EventLog) -> Iterator[None]:
    """Report an error inside as the worker's own fault, and end the process. Nobody presses Ctrl-C
    here: also an exit and a KeyboardInterrupt are of the user's code.
    """
    try:
        yield
    except BaseException as error:
        journal.write(Broken(error=describe(error)))
        traceback.print_exc()
        raise SystemExit(1) from None


def describe(error: BaseException) -> ErrorText:
    """The error in a line or, for a compiler, in its own words, with the user's file and line."""
    if isinstance(error, WorkbenchError):
        return ErrorText.of(error)
    if words := in_words(error):
        return words
    kind = type(error).__name__
    where, lines = place(error), str(error).strip().splitlines()
    message = f"{kind}: {lines[0]}" if lines else kind
    if isinstance(error, SystemExit | KeyboardInterrupt):
        message = f"{where or 'it'} ends its process: {message}"
        return ErrorText(kind=kind, message=message, hint=NO_END)
    return ErrorText(kind=kind, message=f"{message}{f' ({where})' if where else ''}")


NVCC_ERROR = re.compile(r"(\S+?)[(:](\d+)\)?\S*\s+(?:fatal |catastrophic )?error\s*:?\s*(.*)$")
NO_COMPILER = (
    "CUDA_HOME environment variable is not set",
    "No such file or directory: 'nvcc'",
    "nvcc: not found",
    "nvcc: No such file",
)
NO_END = (
    "take out what ends the process: others are measured in it, too; arguments that a script "
    "reads stand after --: workbench try FILE.py -- --size 4096"
)
FIX_LINE = "fix this line, or the inputs"
BESIDE_HINT = "a variant is measured beside others: it leaves them and what measures them alone"
STREAM_HINT = (
    "all of its work belongs on torch.cuda.current_stream(): CuPy launches there inside "
    "`with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)`, Numba on "
    "numba.cuda.external_stream(torch.cuda.current_stream().cuda_stream), CuTe DSL by "
    ".launch(..., stream=stream)"
)


def in_words(error: BaseException) -> ErrorText | None:
    """Explain an error by itself, or what it came of; None if its own first line says as much."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if text := next(filter(None, (says(cause) for says in SAYS)), None):
            return ErrorText(kind=type(error).__name__, message=text[0], hint=text[1])
        cause = cause.__cause__ or cause.__context__
    return None


def in_users_words(error: Exception, doing: str) -> WorkbenchError:
    """Turn an error of the user's code into one with his own file and line."""
    if isinstance(error, WorkbenchError):
        return error
    kind = type(error)
    if words := in_words(error):
        lacks = isinstance(error, ModuleNotFoundError)
        return (EnvironmentLacks if lacks else GateFailed)(
            words.message, hint=words.hint or FIX_LINE
        )
    first = (str(error).strip().splitlines() or [""])[0]
    where = f"{at}: " if (at := place(error)) else ""
    hint = "try smaller inputs" if kind.__name__ == "OutOfMemoryError" else FIX_LINE
    return GateFailed(f"{where}{doing}: {kind.__name__}: {first}", hint=hint)


def place(error: BaseException) -> str:
    """``fix1.py:12``, the innermost line of the study's own code; "" where none is among them."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/kernels/" in f.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def _at(where: str) -> str:
    return f" ({where})" if where else ""


def _package(error: BaseException) -> tuple[str, str] | None:
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        if isinstance(error, RuntimeError) and "Ninja is required" in str(error):
            return "load_inline needs ninja, which is not installed", "pip install ninja"
        return None
    package = package_of(error.name)
    said = "" if package == error.name else f" (of the package {package})"
    why = f"needs {error.name}{said}, which is not installed{_at(place(error))}"
    return why, how_to_install(error.name)


def _triton(error: BaseException) -> tuple[str, str] | None:
    """A compile error of Triton or Helion: it holds the function's text, and a node with the line
    in it. One in a function that is called is the cause of one at the call.
    """
    if not _is_tritons(error):
        return None
    top = error
    while error.__cause__ is not None and _is_tritons(error.__cause__):
        error = error.__cause__
    source, node = getattr(error, "src", None), getattr(error, "node", None)
    why = str(getattr(error, "error_message", None) or "") or _reason(error)
    number = getattr(node, "lineno", None)
    if not isinstance(source, str) or not isinstance(number, int):
        return f"Triton cannot compile it: {why}{_at(place(top))}", ""
    written = source.splitlines()[number - 1].strip() if number <= len(source.splitlines()) else ""
    where = _line_in(top, source, number)
    launch = f"; it is launched at {at}" if (at := place(top)) else ""
    return (
        f"Triton cannot compile `{written}`{_at(where)}: {why}",
        f"fix {where or 'this line'}{launch}",
    )


def _reason(error: BaseException) -> str:
    """What an error of Triton says below the line and its caret, else what it came of: an assert
    of Triton's own may have no text but its line.
    """
    below = re.split(r"^[ \t]*\^[ \t]*$", str(error), flags=re.MULTILINE)[-1].strip()
    if below:
        return below.splitlines()[-1].strip()
    cause = error.__cause__ or error.__context__
    if cause is None:
        return "it gives no reason"
    frames = traceback.extract_tb(cause.__traceback__)
    lines = [*str(cause).strip().splitlines(), frames[-1].line if frames else ""]
    return ": ".join(filter(None, (type(cause).__name__, lines[0])))


def _is_tritons(error: BaseException) -> bool:
    named = type(error).__name__ in ("CompilationError", "UnsupportedLanguageConstruct")
    return named and type(error).__module__.startswith("triton.")


def _line_in(error: BaseException, source: str, number: int) -> str:
    """File and line of a line of a function's text, in the files that the traceback names."""
    frames = traceback.extract_tb(error.__traceback__)
    files = dict.fromkeys(f.filename for f in frames if "/kernels/" in f.filename)
    for file in files:
        path = Path(file)
        text = path.read_text(errors="replace") if path.is_file() else ""
        offset = text.find(source.strip())
        if offset >= 0:
            return f"{path.name}:{text.count(chr(10), 0, offset) + number}"
    return ""


def _nvcc(error: BaseException) -> tuple[str, str] | None:
    """load_inline and load: no compiler, or what it said."""
    text = str(error)
    if any(said in text for said in NO_COMPILER):
        return (
            f"load_inline needs nvcc, which is not found{_at(place(error))}",
            "install the CUDA toolkit and set CUDA_HOME to it; cuda.kernel of the workbench needs "
            "no nvcc",
        )
    built_by_ninja = "Error building extension" in text or text.startswith("ninja exited")
    if not isinstance(error, RuntimeError) or not built_by_ninja:
        return None
    matches = [match for line in text.splitlines() if (match := NVCC_ERROR.search(line))]
    places = [(lasting_name(match[1]), match[2], match[3]) for match in matches]
    users = [place for place in places if place[0].startswith(VIRTUAL_ROOT)]
    if not places:
        linked = re.search(r"^.*\bld: .*$", text, re.MULTILINE)
        return (f"it cannot be linked: {linked[0]}", "set CUDA_HOME") if linked else None
    file, line, why = (users or places)[0]
    return f"nvcc cannot compile {file}:{line}: {why}", "fix this line"


def _call(error: BaseException) -> tuple[str, str] | None:
    """Errors of torch, cuda.core and CuPy when they are called."""
    if type(error).__name__ == "OutOfMemoryError":  # its own text ends in advice on the allocator
        first = str(error).strip().partition(". GPU")[0]
        return f"{first}{_at(place(error))}", (
            "a session holds four draws of the inputs, and of every variant inputs, outputs and "
            "what its graphs keep: measure fewer variants at once, or a smaller shape"
        )
    if type(error).__name__ == "DynamicLibNotFoundError":
        return "needs a GPU: there is no NVIDIA driver here", "try it where there is one"
    if "Unsupported type <class 'torch" in str(error):
        hint = "try a function with return torch.from_dlpack(NAME(cupy.from_dlpack(x)))"
        return f"CuPy takes no tensor of torch{_at(place(error))}", f"{hint}; {STREAM_HINT}"
    return None


SAYS = (_package, _triton, _nvcc, _call)
