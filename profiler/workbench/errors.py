"""Every error a user can meet, and the exit code it ends in.

WorkbenchError
├── UsageError           2  a wrong name, option, workspace file or evidence of a newer schema
├── EnvironmentLacks     3  no GPU, no ncu, no permission, a missing package, a full disk
├── ToolFailed           4  ncu, the compiler or the worker failed
│   └── BadCapture       4  a capture that cannot be read
├── GateFailed           1  the answer is no: a variant is wrong or a gate did not pass
└── CannotTell           5  neither yes nor no: not measured, or too noisy to say
Interrupted            130  Ctrl-C; a KeyboardInterrupt
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WorkbenchError(Exception):
    """An expected failure: printed as ``error:`` and ``hint:``, never as a traceback."""

    exit_code = 4
    code = "tool"  # of a brief answer

    def __init__(self, message: str, *, hint: str = "", ran: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.ran = ran
        if hint:
            self.add_note(f"hint: {hint}")  # where a script or a notebook shows a traceback


class UsageError(WorkbenchError):
    exit_code = 2
    code = "usage"


class EnvironmentLacks(WorkbenchError):
    exit_code = 3
    code = "missing"


class ToolFailed(WorkbenchError):
    exit_code = 4


class BadCapture(ToolFailed):
    code = "capture"


class GateFailed(WorkbenchError):
    exit_code = 1
    code = "no"


class CannotTell(WorkbenchError):
    exit_code = 5
    code = "cannot_tell"


GOES_ON = "what was finished is kept; the same command goes on from there"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a use case was at work: exit code 130."""

    exit_code = 130

    def __init__(self, message: str = f"interrupted: {GOES_ON}") -> None:
        super().__init__(message)


FEW, NEAR = 12, 4  # names that a hint lists where none is close: all of a few, or the nearest


def nearest(name: str, known_names: Iterable[str]) -> str:
    """A hint naming the closest of the known names; all of a few where none is close, and of many
    those nearest to it.
    """
    names = list(known_names)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{close[0]}'?"
    if len(names) <= FEW:
        return f"known: {', '.join(sorted(names))}" if names else "none is known here"
    near = sorted(candidate for candidate in names if name.lower() in candidate.lower())
    near = near or difflib.get_close_matches(name, names, n=NEAR, cutoff=0)
    return f"nearest: {', '.join(near[:NEAR])}; there are {len(names)}"


def with_hint(why: str, hint: str) -> str:
    """An error as it is printed, its own way out in a line below."""
    return f"{why}\nhint: {hint}" if hint else why


def unknown(kind: str, name: str, known_names: Iterable[str]) -> UsageError:
    return UsageError(f"unknown {kind} '{name}'", hint=nearest(name, known_names))
