"""What still has to be measured on a GPU, in steps that whoever has one for half an hour can run.

    python -m benchmarks.on_card --list
    python -m benchmarks.on_card doctor redteam 'softmax-*' --out DIR --wheels DIR... --seconds 570
    python -m benchmarks.on_card --take DIR/changed.tar.gz     # in the checkout, afterwards

The steps stand in ``on_card.toml``. They run one after the other on a copy of this repository below
``--scratch``, each with its limit; a step that is stopped keeps what it had finished, and goes on
there when it is run again. After each one DIR has all that was changed in the copy so far, in
``changed.tar.gz`` (``.part0``, ``.part1`` where that is large), what was printed, in ``log.txt``,
and a table of what ended how, in ``table.md``. With ``--lanes N`` as many go on at once, each on a
copy and a card of its own: ``lane-0.changed.tar.gz`` and so on, which ``--take`` puts together. It
starts on a bare Python: packages come as ``--wheels``, a large one in pieces ``NAME.whl.part0``,
``.part1``, if need be with several calls.

Exit codes: 0 done, 1 a step failed or was stopped, 2 usage, 3 a step was left out, 130 interrupted.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.card_lanes import Lanes
from benchmarks.card_run import INTERRUPTED_CODE, Run, Told, table
from benchmarks.card_steps import ROOT, Unusable, cards, chosen, listing, read_steps, shown
from benchmarks.card_take import take

SCRATCH = Path("/tmp/ws")


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
    add("--lanes", type=int, metavar="N", help="so many steps at once, each with a card of its own")
    add(
        "--take", type=Path, nargs="+", metavar="FILE",
        help="put what a run changed into this checkout: of lanes all of them together",
    )  # fmt: skip
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
            if given.lanes and given.lanes > cards():
                raise Unusable(f"{given.lanes} lanes want as many cards, and {cards()} are here")
            told = Told(given.out.absolute())
            runs = [
                Run(told.out, given.scratch, began + given.seconds, lane=lane, shared=told)
                for lane in (range(given.lanes) if given.lanes else [None])
            ]
            for run in runs:
                run.prepare(given.wheels)
            code = Lanes(runs, wanted).run() if given.lanes else runs[0].run(wanted)
            print(table(told.ended), end="")
            return code
    except (Unusable, ValueError, OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # between two steps
        return INTERRUPTED_CODE
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
