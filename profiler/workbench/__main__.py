"""Runs the command line. Ctrl-C at any moment, as while it imports, ends it without a traceback."""

from __future__ import annotations

import signal

INTERRUPTED = 130


def main() -> int:
    try:
        from workbench.cli.main import main as run

        code = run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all that is left is the interpreter's own end
    return code


if __name__ == "__main__":
    raise SystemExit(main())
