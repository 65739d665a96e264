"""Copies of a variant's module: one a device, or one for everybody who may run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType

import torch


class Instances:
    """``load`` gives a module that is loaded anew.

    A variant that ``keeps`` something from call to call, such as a counter that its blocks share,
    is right only where calls come one after the other: in one stream. Each stream has a module to
    itself then, and so has each graph that is captured, since it may be replayed in any stream.
    Where the caller says that all calls are ``serial``, whatever their streams and graphs, one
    module is enough.
    """

    def __init__(self, load: Callable[[], ModuleType], *, keeps: bool) -> None:
        self._load = load
        self._keeps = keeps
        self.serial = False
        self._made: dict[tuple[int, ...], ModuleType] = {}
        self._lock = threading.RLock()

    def at(self, device: torch.device) -> ModuleType:
        """The module for a call on a device's current stream. It stays for as long as the process:
        nobody tells when a graph is gone.
        """
        key = self._key(device)
        found = self._made.get(key)
        if found is None:
            with self._lock:
                found = self._made.get(key) or self._load()
                self._made[key] = found
        return found

    def _key(self, device: torch.device) -> tuple[int, ...]:
        index = device.index if device.index is not None else torch.cuda.current_device()
        if not self._keeps:
            return (index,)
        stream = torch.cuda.current_stream(index).cuda_stream
        capture = _capture(stream)
        # What a first call keeps is in the graph alone where that call is captured.
        if self.serial and (not capture or (index,) in self._made):
            return (index,)
        return (index, stream, capture)


def _capture(stream: int) -> int:
    """The id of the capture that a stream takes part in; 0 for none."""
    if not torch.cuda.is_current_stream_capturing():
        return 0
    from cuda.bindings import driver

    status, _, capture, *_ = driver.cuStreamGetCaptureInfo(driver.CUstream(stream))
    if int(status) != 0:
        raise RuntimeError(f"the capture of a stream cannot be told: {status!r}")
    return int(capture)
