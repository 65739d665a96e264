"""What still has to be measured on a GPU, in steps that whoever has one for half an hour can run.

    python -m benchmarks.on_card --list
    python -m benchmarks.on_card doctor redteam 'softmax-*' --out DIR --wheels DIR... --seconds 570
    python -m benchmarks.on_card --take DIR/changed.tar.gz     # in the checkout, afterwards

The steps stand in ``on_card.toml``. They run one after the other on a copy of this repository below
``--scratch``, each with its limit; a step that is stopped keeps what it had finished, and goes on
there when it is run again. After each one DIR has all that was changed in the copy so far, in
``changed.tar.gz`` (``.part0``, ``.part1`` where that is large), what was printed, in ``log.txt``,
and a table of what ended how, in ``table.md``. It starts on a bare Python: packages come as
``--wheels``, a large one in pieces ``NAME.whl.part0``, ``.part1``, if need be with several calls.

Exit codes: 0 done, 1 a step failed or was stopped, 2 usage, 3 a step was left out, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.card_steps import (
    ROOT,
    Machine,
    Step,
    Unusable,
    chosen,
    drawn_by,
    last_step,
    listing,
    own_packages,
    read_steps,
    shown,
)
from benchmarks.card_tree import Tree, take
from benchmarks.card_wheels import Site

SCRATCH = Path("/tmp/ws")
PACK = "changed.tar.gz"
PRIVATE = ("/home/", "/root/", "/Users/")  # which no evidence may hold
GRACE = 75.0  # seconds after Ctrl-C: ncu may take 60 to write its report
PACKING = 10.0  # seconds that are kept for it
TAIL = 8  # lines of a step's log that are shown at its end
DONE, FAILED, STOPPED, LEFT_OUT = "done", "failed", "stopped", "left out"
INTERRUPTED, INTERRUPTED_CODE = "interrupted", 130


@dataclass(frozen=True)
class Ended:
    """How a step ended, and why where it is not done."""

    step: str
    how: str
    seconds: float
    why: str = ""


def table(ended: Sequence[Ended]) -> str:
    rows = ["| step | ended | seconds |", "| --- | --- | ---: |"]
    for one in ended:
        why = f": {one.why}" if one.why else ""
        rows.append(f"| {one.step} | {one.how}{why} | {one.seconds:.0f} |")
    return "\n".join(rows) + "\n"


def fill(page: Path, mark: str, text: str) -> None:
    """Below ``<!-- MARK -->``, in place of what was put there before. Raises Unusable."""
    old = page.read_text(encoding="utf-8")
    marked = re.compile(rf"<!-- {mark} -->\n(?:.*?<!-- /{mark} -->\n)?", re.DOTALL)
    new = f"<!-- {mark} -->\n{text.strip()}\n<!-- /{mark} -->\n"
    if marked.search(old) is None:
        raise Unusable(f"{page.name} has no mark {mark}")
    page.write_text(marked.sub(lambda match: new, old, count=1), encoding="utf-8")


@dataclass
class Run:
    """Steps on a copy of the repository; ``last`` is the moment by which all must be over."""

    out: Path
    scratch: Path
    last: float = float("inf")
    source: Path = ROOT
    grace: float = GRACE
    ended: list[Ended] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tree = Tree(self.scratch / "tree", self.scratch / "copied.json")
        told = self.out / "table.md"
        self.before = f"{told.read_text(encoding='utf-8')}\n" if told.is_file() else ""
        self.site = Site(*(self.scratch / name for name in ("site", "wheels", "cache")))

    def prepare(self, wheels: Sequence[Path]) -> None:
        """The copy and the packages. Raises Unusable for a folder that is somebody else's."""
        where = self.scratch.resolve()
        if where.is_relative_to(self.source) or where.as_posix().startswith(PRIVATE):
            raise Unusable(
                f"{where} is somebody's own path, which captures would hold: say another"
            )
        if not self.tree.copied.is_file() and self.scratch.exists() and any(self.scratch.iterdir()):
            raise Unusable(f"{self.scratch} is no folder of this program's: say another --scratch")
        if not self.tree.copied.is_file() and any(self.out.glob(f"{PACK}*")):
            raise Unusable(
                f"{self.out} has results of another copy: take them, or say another --out"
            )
        self.out.mkdir(parents=True, exist_ok=True)
        for name in self.tree.refresh(self.source):
            say(f"{name}: changed here and by an earlier step, whose form stays")
        for name in self.site.install(wheels):
            say(f"{name}: not whole yet, other pieces have to come")

    def run(self, steps: Sequence[Step]) -> int:
        """The exit code."""
        machine, own = Machine(self.site.packages), own_packages(self.tree.root)
        for step in steps:
            lacks = machine.lacks(step, own)
            left = self.last - time.monotonic() - self.grace - PACKING
            if lacks:
                self.end(Ended(step.name, LEFT_OUT, 0, f"lacks {', '.join(lacks)}"))
            elif left < step.expected:
                why = f"takes {step.expected} s, and {max(0, left):.0f} are left"
                self.end(Ended(step.name, LEFT_OUT, 0, why))
            else:
                say(f"{step.name}: {step.what}; {step.expected} s, at most {step.limit}")
                ended = self.step(step, min(step.limit, left))
                self.end(ended)
                if ended.why == INTERRUPTED:
                    return INTERRUPTED_CODE
        ways = {one.how for one in self.ended}
        return 1 if ways & {FAILED, STOPPED} else 3 if LEFT_OUT in ways else 0

    def end(self, ended: Ended) -> None:
        """Note it, and pack what there is."""
        self.ended.append(ended)
        why = f": {ended.why}" if ended.why else ""
        say(f"{ended.step}: {ended.how}{why} ({ended.seconds:.0f} s)")
        (self.out / "table.md").write_text(self.before + table(self.ended), encoding="utf-8")
        self.tree.pack(self.out / PACK)

    def step(self, step: Step, limit: float) -> Ended:
        began = time.monotonic()
        how, why = DONE, ""
        try:
            for arguments in step.arguments(self.drawn(step)):
                left = began + limit - time.monotonic()
                code, printed = self.command(arguments, left, apart=bool(step.into))
                if code != 0:
                    how = STOPPED if code is None else FAILED
                    why = f"over {limit:.0f} s" if code is None else f"exit {code}"
                    break
            else:
                if step.into:
                    page, mark = step.into.split()
                    text = f"`{step.commands[-1]}`, {datetime.now(UTC):%Y-%m-%d}:\n\n{printed}"
                    fill(self.tree.root / page, mark, text)
        except Unusable as error:
            how, why = FAILED, str(error)
        except KeyboardInterrupt:
            how, why = STOPPED, INTERRUPTED
        return Ended(step.name, how, time.monotonic() - began, why)

    def drawn(self, step: Step) -> dict[str, str]:
        """For what stands in angle brackets in its commands."""
        found = {}
        for word in drawn_by([step]):
            kind, _, study = word.strip("<>").partition(":")
            found[word] = (
                last_step(self.tree.root, study)
                if kind == "last"
                else tempfile.mkdtemp(prefix=f"{step.name}-", dir=self.scratch)
            )
        return found

    def command(
        self, arguments: Sequence[str], limit: float, *, apart: bool
    ) -> tuple[int | None, str]:
        """Its exit code, None where it was stopped, and with ``apart`` what it printed on stdout,
        which otherwise goes to the log alone, as it comes.
        """
        path = self.out / "log.txt"
        with path.open("ab") as log, tempfile.TemporaryFile() as stdout:
            shown = shlex.join(["python", *arguments[1:]])
            log.write(f"\n==== {datetime.now(UTC):%H:%M:%S} {shown}\n".encode())
            log.flush()
            begins = log.tell()
            started = subprocess.Popen(
                arguments,
                cwd=self.tree.root,
                env=self.site.environment(self.tree.root, self.source),
                stdin=subprocess.DEVNULL,
                stdout=stdout if apart else log,
                stderr=log,
                start_new_session=True,
            )
            try:
                code = waited(started, limit, self.grace)
            finally:
                stdout.seek(0)
                printed = stdout.read()
                log.write(printed)
        for line in (
            path.read_bytes()[begins:].decode(errors="replace").strip().splitlines()[-TAIL:]
        ):
            print(f"    {line}", flush=True)
        return code, printed.decode(errors="replace")


def waited(started: subprocess.Popen[bytes], limit: float, grace: float) -> int | None:
    """The exit code; None where it took longer than ``limit`` seconds and was interrupted, which
    leaves it ``grace`` to keep what it has. Nothing of its group is left. After Ctrl-C here it is
    interrupted as well.
    """
    try:
        return started.wait(max(0.0, limit))
    except subprocess.TimeoutExpired:
        interrupt(started, grace)
        return None
    except KeyboardInterrupt:
        interrupt(started, grace)
        raise
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def interrupt(started: subprocess.Popen[bytes], grace: float) -> None:
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        started.wait(grace)


def say(text: str) -> None:
    print(f"[{datetime.now(UTC):%H:%M:%S}] {text}", flush=True)


def main(arguments: Sequence[str]) -> int:
    began = time.monotonic()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.on_card",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help="names, or patterns: 'try-*'")
    parser.add_argument("--list", action="store_true", help="the steps, as a table")
    parser.add_argument("--dry-run", action="store_true", help="only print the commands")
    add = parser.add_argument
    add("--out", type=Path, default=Path("on-card"), metavar="DIR", help="for results; ./on-card")
    add("--wheels", type=Path, nargs="+", default=[], metavar="DIR", help="packages to install")
    add("--scratch", type=Path, default=SCRATCH, metavar="DIR", help="for the copy; /tmp/ws")
    add(
        "--seconds", type=float, default=float("inf"), help="for all; what takes longer is left out"
    )
    add("--take", type=Path, metavar="FILE", help="put what a run changed into this checkout")
    given = parser.parse_args(arguments)
    steps = read_steps()
    try:
        if given.list:
            print(listing(steps), end="")
        elif given.take:
            taken = take(given.take, ROOT)
            print(f"{len(taken.written)} files written, {len(taken.removed)} removed")
            for name in taken.both:
                print(f"{name}: changed in both, and left as it is here")
            return 1 if taken.both else 0
        elif not given.steps:
            raise Unusable("no step was named; --list names them")
        elif given.dry_run:
            print(shown(chosen(steps, given.steps), ROOT), end="")
        else:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            wanted = chosen(steps, given.steps)
            run = Run(given.out.absolute(), given.scratch, began + given.seconds)
            run.prepare(given.wheels)
            code = run.run(wanted)
            print(table(run.ended), end="")
            return code
    except (Unusable, ValueError, OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # between two steps
        return INTERRUPTED_CODE
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
