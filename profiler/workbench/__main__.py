"""Runs the command line in a child process and passes its exit code on: ``study.py`` is a user's
code, which may end the process that reads it, and that is no answer.
"""

from __future__ import annotations

import os
import signal
import sys

INTERRUPTED = 130
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    from workbench import answered

    parent = os.getpid()
    child = os.fork()
    if child:
        return waited(child)
    answered.end_with(parent, signal.SIGKILL)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        from workbench.cli.main import main as run

        code = run()
    except KeyboardInterrupt:  # at any moment, as while it imports
        code = INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all that is left is the interpreter's own end
    answered.answer(code)
    return code


def waited(child: int) -> int:
    """The exit code of the child, which gets the signals that only this process got, too."""
    from workbench import answered

    for number in PASSED_ON:
        signal.signal(number, lambda number, frame: os.kill(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    if server := os.environ.get(answered.SERVER):
        answered.end_with(int(server), signal.SIGTERM)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # until here a signal finds it
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_IGN)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = answered.exit_code()
    if code is not None:
        return code
    if ended < 0:
        signal.signal(-ended, signal.SIG_DFL) if -ended != signal.SIGKILL else None
        os.kill(os.getpid(), -ended)
    path = os.fsdecode(answered.running())
    return unanswered(path, ended) if path or not ended else ended


def unanswered(path: str, ended: int) -> int:
    from workbench.cli import streams
    from workbench.cli.main import complain
    from workbench.errors import ToolFailed, UsageError

    streams.prepare()
    streams.answered = "--brief" not in sys.argv[1:]
    kind = UsageError if path else ToolFailed
    error = kind(
        f"{path or 'something'} ended this command with exit code {ended} before it had an answer",
        hint="take out what ends the process, such as os._exit: every verb runs this file",
    )
    complain(error)
    streams.flush()
    return error.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
