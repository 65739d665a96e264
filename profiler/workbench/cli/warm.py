"""A process that has imported the verbs, and forks for each call: an answer waits for no import.

A call is a process of its own all the same, with the supervisor of ``__main__``.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pkgutil import walk_packages

from workbench import children
from workbench.errors import ToolFailed

READ = ("app", "cli", "derive", "judge", "load", "render", "reporters")  # what answers import
LONGEST_LINE = 1 << 24  # bytes on stderr, such as a compiler's; asyncio's own 64 KiB are too few


@dataclass(frozen=True)
class StartedVerb:
    """A verb that runs: its streams, and its exit code once it has ended."""

    pid: int
    out: asyncio.StreamReader
    err: asyncio.StreamReader
    ended: asyncio.Future[int]

    def cancel(self) -> None:
        """End it, if it has not."""
        if self.pid and not self.ended.done():
            os.kill(self.pid, signal.SIGTERM)


class Warm:
    """Forks once, before the caller has threads."""

    def __init__(self) -> None:
        self.calls, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        if not os.fork():
            try:
                self.calls.close()
                children.end_with(parent, signal.SIGKILL)
                _serve(there)
            finally:
                os._exit(1)
        there.close()

    async def start(self, arguments: Sequence[str]) -> StartedVerb:
        """Start a verb. Raises ToolFailed."""
        ours, theirs = socket.socketpair()
        pipes = os.pipe(), os.pipe()
        with theirs:
            try:
                socket.send_fds(self.calls, [b"."], [theirs.fileno(), *(end for _, end in pipes)])
            except OSError as error:
                raise ToolFailed("the server's verbs have ended", hint="start it again") from error
            finally:
                for _, end in pipes:
                    os.close(end)
        told, writer = await asyncio.open_connection(sock=ours)
        writer.write(json.dumps(list(arguments)).encode() + b"\n")
        out, err = [await reader(end) for end, _ in pipes]
        pid = int(await told.readline() or 0)

        async def code() -> int:
            try:
                return int(await told.readline() or ToolFailed.exit_code)  # else it was killed
            finally:
                writer.close()

        return StartedVerb(pid, out, err, asyncio.create_task(code()))


async def reader(end: int) -> asyncio.StreamReader:
    stream = asyncio.StreamReader(LONGEST_LINE)
    protocol = asyncio.StreamReaderProtocol(stream)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(end, "rb"))
    return stream


def _serve(calls: socket.socket) -> None:
    """Import, then fork for each call, until the other end is closed."""
    for number in children.PASSED_ON:
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):  # the client's
        os.dup2(null, stream)
    if not sys.flags.safe_path:
        del sys.path[0]  # a study stands there, or a script
    for room in READ:
        package = import_module(f"workbench.{room}")
        for module in walk_packages(getattr(package, "__path__", ()), f"{package.__name__}."):
            with suppress(ImportError):  # of an extra that is not installed
                import_module(module.name)
    import_module("workbench.cli.main").command()
    import_module("workbench.ncu.catalog").catalog()
    gc.freeze()
    server = os.getpid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a call
    while True:
        data, ends, _, _ = socket.recv_fds(calls, 1, 3, socket.MSG_CMSG_CLOEXEC)
        if not data:
            return
        if not os.fork():
            calls.close()
            _call(server, *ends)
        for end in ends:
            os.close(end)


def _call(parent: int, control: int, *streams: int) -> None:
    """Run a verb as ``python -m workbench`` does, and never return."""
    code, server, channel = 1, os.getpid(), socket.socket(fileno=control)
    try:
        children.end_with(parent, signal.SIGTERM)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, end in enumerate(streams, start=1):
            os.dup2(end, number)
            os.close(end)
        channel.sendall(b"%d\n" % server)
        sys.argv[1:] = json.loads(channel.makefile("rb").readline())
        try:
            runpy.run_module("workbench", run_name="__main__")
        except SystemExit as end:
            code = int(end.code or 0)
        if os.getpid() == server:  # not the verb itself, which is below
            channel.sendall(b"%d\n" % code)
    finally:
        os._exit(code)
