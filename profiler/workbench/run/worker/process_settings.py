"""Settings of torch and Python that hold for the whole process: how to read them, and how to put
them back. In the worker.

The precision of float32 belongs to the code that sets it: ``own_precision``.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from workbench.ncu.command import VARIANT_MODULE


@dataclass(frozen=True)
class ProcessSetting:
    """One of torch's or Python's, for the whole process."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], None]

    def value(self) -> Any:
        """The setting as it is now; the name of the error where torch refuses to read it."""
        try:
            return self.read()
        except Exception as error:
            return type(error).__name__


def _attribute(path: str) -> ProcessSetting:
    """A flag that is an attribute: ``torch.backends.cudnn.enabled``."""
    owner, _, name = path.rpartition(".")
    parts = owner.split(".")

    def find() -> Any:
        value: Any = import_module(parts[0])
        for part in parts[1:]:
            value = getattr(value, part)
        return value

    return ProcessSetting(
        path, lambda: getattr(find(), name), lambda value: setattr(find(), name, value)
    )


# torch has two ways to set the precision of float32. It refuses to read by the older one what was
# set by the newer (``fp32_precision``), of which releases before 2.9 have none.
OLDER: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "torch.get_float32_matmul_precision": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    "torch.backends.cudnn.allow_tf32": (
        torch._C._get_cudnn_allow_tf32,
        torch._C._set_cudnn_allow_tf32,
    ),
}
HAS_NEWER = hasattr(torch._C, "_get_fp32_precision_getter")
NEWER = [("generic", "all")] + [
    (backend, operation)
    for backend in ("cuda", "mkldnn")
    for operation in ("all", "matmul", "conv", "rnn")
]
Precision = dict[str, object]


def _precision() -> Precision:
    """Read the settings of precision, without what torch refuses to read."""
    settings: Precision = {}
    for name, (read, _) in OLDER.items():
        with suppress(RuntimeError):
            settings[name] = read()
    for backend, operation in NEWER if HAS_NEWER else ():
        value = torch._C._get_fp32_precision_getter(backend, operation)
        settings[f"fp32_precision of {backend} {operation}"] = value
    return settings


def _set_precision(before: Precision) -> None:
    now = _precision()
    for name, (_, write) in OLDER.items():
        if name in before and before[name] != now.get(name):
            write(before[name])
    # The older way has set these too.
    for backend, operation in NEWER if HAS_NEWER else ():
        value = str(before[f"fp32_precision of {backend} {operation}"])
        torch._C._set_fp32_precision_setter(backend, operation, value)


PRECISION = ProcessSetting("torch's float32 precision", _precision, _set_precision)
LOADED = re.compile(rf"^{VARIANT_MODULE}_\d+_")
_own: dict[str, object] = {}  # the precision that the code of a module has set


@contextmanager
def own_precision(module: str) -> Iterator[None]:
    """The float32 precision inside is the one that the code of a module has set, and what it sets
    inside is no other's: as in a process of its own. A variant's modules, loaded anew, are one.
    """
    name, before = LOADED.sub("", module), PRECISION.value()
    if _own.get(name, before) != before:
        PRECISION.write(_own[name])
    try:
        yield
    finally:
        _own[name] = PRECISION.value()
        if _own[name] != before:
            PRECISION.write(before)


def keep_precision(module: ModuleType) -> None:
    """The functions of a variant or a study have the float32 precision that their code sets."""

    def kept(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            with own_precision(module.__name__):
                return function(*arguments, **named)

        return called

    for name in ("run", "inputs", "reference", "exact", "plain", "accepts"):
        if callable(function := getattr(module, name, None)):
            setattr(module, name, kept(function))


def _signals() -> dict[int, Any]:
    return {int(each): signal.getsignal(each) for each in signal.valid_signals()}


def _set_signals(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def _timers() -> tuple[bool, ...]:
    return tuple(signal.getitimer(timer) != (0.0, 0.0) for timer in TIMERS)


def _stop_timers(before: tuple[bool, ...]) -> None:
    for timer, was_running in zip(TIMERS, before, strict=True):
        if not was_running:
            signal.setitimer(timer, 0)


MONITORING: Any = getattr(sys, "monitoring", None)  # from Python 3.12 on
TOOLS = range(6)


def _tools() -> tuple[str | None, ...]:
    return tuple(MONITORING.get_tool(tool) for tool in TOOLS) if MONITORING else ()


def _free_tools(before: tuple[str | None, ...]) -> None:
    for tool, name in enumerate(before):
        if name is None and MONITORING.get_tool(tool) is not None:
            MONITORING.free_tool_id(tool)


def _modes(kind: str) -> ProcessSetting:
    """The depth of a stack of torch's modes, which is only ever cut down to what it was."""
    depth = getattr(torch._C, f"_len_torch_{kind}_stack")
    leave = getattr(torch._C, f"_pop_torch_{kind}_stack")

    def cut(before: int) -> None:
        while depth() > before:
            leave()

    return ProcessSetting(f"torch's stack of {kind} modes", depth, cut)


SETTINGS = (
    *map(
        _attribute,
        (
            "torch.backends.cudnn.enabled",
            "torch.backends.cudnn.benchmark",
            "torch.backends.cudnn.deterministic",
            "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
            "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
        ),
    ),
    *(
        ProcessSetting(
            f"torch.backends.cuda.{kind}_sdp_enabled",
            getattr(torch.backends.cuda, f"{kind}_sdp_enabled"),
            getattr(torch.backends.cuda, f"enable_{kind}_sdp"),
        )
        for kind in ("flash", "mem_efficient", "math", "cudnn")
    ),
    PRECISION,
    ProcessSetting("torch.get_default_dtype", torch.get_default_dtype, torch.set_default_dtype),
    ProcessSetting(
        "torch.are_deterministic_algorithms_enabled",
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    ProcessSetting("torch.is_grad_enabled", torch.is_grad_enabled, torch._C._set_grad_enabled),
    *map(_modes, ("function", "dispatch")),
    ProcessSetting("sys.settrace", sys.gettrace, sys.settrace),
    ProcessSetting("sys.setprofile", sys.getprofile, sys.setprofile),
    ProcessSetting("threading.settrace", threading.gettrace, threading.settrace),
    ProcessSetting("threading.setprofile", threading.getprofile, threading.setprofile),
    ProcessSetting("the tools of sys.monitoring", _tools, _free_tools),
    ProcessSetting("the handlers of signals", _signals, _set_signals),
    ProcessSetting("the timers of signals", _timers, _stop_timers),
)
