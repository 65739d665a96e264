"""Runs the command line in a child process and passes its exit code on: ``study.py`` is a user's
code, which may end the process that reads it, and that is no answer.
"""

from __future__ import annotations

import signal
import sys

INTERRUPTED = 130


def main() -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    from workbench import children

    children.listen()
    children.hide_memory()  # of its forks, too: a variant's process is of the same user
    if (status := children.kept()) is not None:
        return told(status)
    try:
        children.unblock()
        from workbench.cli.main import main as run

        code = run()
    except KeyboardInterrupt:  # at any moment, as while it imports
        code = INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all that is left is the interpreter's own end
    children.answer(code)
    return code


def told(status: int) -> int:
    """Return the exit code of a verb whose process ended so: without an answer it is never 0."""
    from workbench import children

    if children.page.has_answer:
        return int(children.page.code)
    path, crash = children.running_file(), children.crash_text()
    if crash:
        from workbench.study.users_code import crash_in_words

        return complain(*crash_in_words(path, crash))
    ended = children.end_like(status)
    if ended and not path:
        return ended
    what = f"{path or 'something'} ended this command with exit code {ended}"
    hint = "take out what ends the process: every verb runs this file"
    return complain(f"{what} before it had an answer", hint if path else "", is_users=bool(path))


def complain(message: str, hint: str, is_users: bool = True) -> int:
    from workbench.cli import main, streams
    from workbench.errors import ToolFailed, UsageError

    streams.prepare()
    streams.owe(sys.argv[1:])
    error = (UsageError if is_users else ToolFailed)(message, hint=hint)
    main.complain(error)
    streams.flush()
    return error.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
