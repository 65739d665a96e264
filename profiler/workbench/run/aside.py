"""One call in a Python process of its own, beside this one: what is independent need not wait.

Threads would not do: Python runs one at a time, and ``ncu_report`` holds it while it decodes.
"""

from __future__ import annotations

import copyreg
import gc
import importlib
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")
# Not -m: as __main__ this module would be another one than where its pickles come from.
START = "import sys; from workbench.run.aside import serve; serve(*sys.argv[1:])"


def _read_only(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


def _dumped(what: Any) -> bytes:
    """Pickled, with the read-only mappings of our dataclasses, which pickle does not know."""
    out = io.BytesIO()
    pickler = pickle.Pickler(out, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {
        **copyreg.dispatch_table,
        MappingProxyType: lambda mapping: (_read_only, (dict(mapping),)),
    }
    pickler.dump(what)
    return out.getvalue()


class Aside(Generic[T]):
    """``function``, of some module's top level, in a process that starts now and imports what it
    needs (``imports``: further modules) until ``give`` hands it the arguments.

    Where that process fails, ``result`` calls the function here: the result, or the error, is the
    same. As a context it ends the process with the block, whether or not it was given anything.
    """

    def __init__(self, function: Callable[..., T], imports: tuple[str, ...] = ()) -> None:
        self._function = function
        self._arguments: tuple[Any, ...] = ()
        # -P and PYTHONPATH: the same modules as here, whatever lies in the current directory.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, function.__module__, function.__name__, *imports],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    @property
    def returncode(self) -> int | None:
        """None while the process runs."""
        return self._process.poll()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]
        self._process.wait()

    def give(self, *arguments: Any) -> None:
        self._arguments = arguments
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as pipe:
            pipe.write(_dumped(arguments))

    def result(self) -> T:
        """Waits for the process to answer. Call once, after ``give``."""
        assert self._process.stdout is not None
        try:
            found: T = pickle.loads(self._process.stdout.read())
        except (EOFError, pickle.UnpicklingError):  # it failed, or was killed while it wrote
            return self._function(*self._arguments)
        return found


def serve(module: str, function: str, *imports: str) -> None:
    """The process: arguments come pickled on standard input, the result goes out the same way."""
    gc.disable()  # it is over before there is garbage worth looking for
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no part of the result
    called = getattr(importlib.import_module(module), function)
    for name in imports:
        importlib.import_module(name)
    arguments = pickle.load(sys.stdin.buffer)
    with out:
        out.write(_dumped(called(*arguments)))
