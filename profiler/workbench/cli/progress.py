"""Progress on stderr: a live line on a terminal. Elsewhere it is one plain line per finished piece,
and in a long silence what is under way.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.render.text import printable, printable_lines
from workbench.words import CheckResult, Phase

if TYPE_CHECKING:  # doctor waits where a package of it is missing
    from workbench.run import protocol

SILENT_S, LOOK_S = 8.0, 0.5  # after which a command says what it waits for
VERBS = {
    Phase.BUILD: "building",
    Phase.CHECK: "checking",
    Phase.TIME: "loading",
    Phase.CAPTURE: "profiling",
    Phase.TRACE: "tracing",
}


@dataclass
class Waiting:
    """Holds what a command waits for, and since when."""

    what: str
    since: float = field(default_factory=time.monotonic)


@contextmanager
def telling(what: str) -> Iterator[Waiting]:
    """Inside, say from time to time what is still waited for, ``what`` at first."""
    done, waiting = threading.Event(), Waiting(what)

    def tell() -> None:
        told = waiting.since
        while not done.wait(LOOK_S):
            now = time.monotonic()
            if now - max(told, waiting.since) >= SILENT_S:
                silence = f"{waiting.what} ({now - waiting.since:.0f} s)"
                print(printable_lines(silence), file=sys.stderr)
                told = now

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield waiting
    finally:
        done.set()
        thread.join()


class Progress:
    """Shows a measurement's events. ``captures`` is how many variants ncu will profile, and
    ``sessions`` how many are wanted before verdicts are looked at.
    """

    def __init__(self, captures: int = 0, sessions: int = 0) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False)
        self.status: Any = None
        self.waiting = Waiting("starting the worker")
        self.until_the_end = ExitStack()
        self.captures = captures
        self.wanted = sessions
        self.captured: set[str] = set()
        self.out: set[str] = set()
        self.checks: list[protocol.Checked] = []  # of one variant, that are not printed yet

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self.status = self.console.status(self.waiting.what)
            self.until_the_end.enter_context(self.status)
        else:
            self.waiting = self.until_the_end.enter_context(telling(self.waiting.what))
        return self

    def __exit__(self, *error: object) -> None:
        self.tell_checks()
        self.until_the_end.close()

    def line(self, text: str) -> None:
        self.console.print(printable_lines(text), markup=False, soft_wrap=True)
        self.waiting.since = time.monotonic()

    def live(self, text: str) -> None:
        self.waiting.what = printable(text)
        if self.status is not None:
            from rich.text import Text

            self.status.update(Text(printable(text)))

    def drop(self, variant: str) -> None:
        """A variant that failed will not be profiled, or was in vain."""
        self.captured.discard(variant)
        if variant not in self.out and self.captures:
            self.out.add(variant)
            self.captures -= 1

    def __call__(self, event: protocol.Event) -> None:
        from workbench.run import protocol

        if not isinstance(event, protocol.Checked):
            self.tell_checks()
        match event:
            case protocol.Start():
                doing = "compiling" if event.compiling else VERBS[event.phase]
                (self.line if event.phase == Phase.TRACE else self.live)(f"{doing} {event.variant}")
            case protocol.Built() if event.kernels:
                warned = f", {_many(len(event.warnings), 'warning')}" if event.warnings else ""
                self.line(f"built {event.variant} for {event.arch}: {_used(event)}{warned}")
            case protocol.Checked():
                self.checked(event)
            case protocol.Round():
                self.live(self.round(event))
            case protocol.TimedSession(session=session) if session.alone:
                self.line("timed references alone")
            case protocol.TimedSession(session=session):
                # With its own number: they begin anew where a variant broke them.
                count = len({one.variant for one in session.series})
                self.line(f"timed {_many(count, 'variant')}, {self.which(session.number)}")
            case protocol.Captured():
                self.captured.add(event.variant)
                done = f"{len(self.captured)} of {self.captures}"
                self.line(f"profiled {event.variant} ({done})")
            case protocol.Failed():
                self.drop(event.variant)
                what = event.error.message.strip().partition("\n")[0]  # all of it stands at the end
                self.line(f"failed {event.variant} ({event.phase}): {what}")

    def which(self, session: int) -> str:
        """A session by its number, which counts from 0."""
        if session >= self.wanted:
            return f"session {session + 1}, a verdict is open"
        return f"session {session + 1} of {self.wanted}"

    def round(self, event: protocol.Round) -> str:
        """``timing, session 3 of 5, round 4 of 6: fix1``."""
        which = "references alone" if event.alone else self.which(event.session)
        where = f"round {event.number + 1} of {event.rounds}" if event.number >= 0 else "warming up"
        where = "a kernel alone" if event.kernel_alone else where
        return f"timing, {which}, {where}" + (f": {event.variant}" if event.variant else "")

    def checked(self, event: protocol.Checked) -> None:
        """Report a check. What is right or unsupported is reported once for all shapes."""
        if self.checks and self.checks[0].variant != event.variant:
            self.tell_checks()
        if event.status in (CheckResult.CORRECT, CheckResult.UNSUPPORTED):
            self.checks.append(event)
            return
        self.tell_checks()
        if event.status == CheckResult.WRONG:
            self.drop(event.variant)
        self.line(_check(event))

    def tell_checks(self) -> None:
        checks, self.checks = self.checks, []
        if checks:
            self.line(_check(checks[0]) if len(checks) == 1 else _checks(checks))


def _check(event: protocol.Checked) -> str:
    error = "" if event.max_abs is None else f", max error {event.max_abs:.2g}"
    why = f": {event.why}" if event.why else ""
    return f"checked {event.variant} at {event.shape}: {event.status}{error}{why}"


def _checks(events: Sequence[protocol.Checked]) -> str:
    """``checked fix5: correct at 5 shapes (max error 0.0019), unsupported at 3``."""
    right = [event for event in events if event.status == CheckResult.CORRECT]
    parts = [f"correct at {_many(len(right), 'shape')}"] if right else []
    if errors := [event.max_abs for event in right if event.max_abs is not None]:
        parts[0] += f" (max error {max(errors):.2g})"
    if others := len(events) - len(right):
        parts.append(f"unsupported at {others if right else _many(others, 'shape')}")
    return f"checked {events[0].variant}: {', '.join(parts)}"


def _used(event: protocol.Built) -> str:
    """``168 registers``, or of several kernels ``8 kernels, 96 to 168 registers``."""
    every = {kernel.registers for kernel in event.kernels}
    registers = f"{f'{min(every)} to ' * (len(every) > 1)}{max(every)} registers"
    many = len(event.kernels)
    return f"{many} kernels, {registers}" if many > 1 else registers


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
