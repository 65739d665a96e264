"""Settings of torch that hold for the whole process, and yet belong to the module whose code sets
them: they are in force while its functions run, and reach no other that is timed beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from workbench.ncu.command import VARIANT_MODULE
from workbench.problems.given import same_draws
from workbench.run.worker.lines import prepare
from workbench.study.workspace import load_module


class ProcessSetting(NamedTuple):
    """``read`` may raise what torch raises; ``write`` takes what was read."""

    read: Callable[[], Any]
    write: Callable[[Any], None]


# Flags of torch._C, for which it has a function that reads and one that writes. The order of the
# backends of attention is none of them: torch itself sets it at the first call, for every caller.
FLAG = re.compile(
    r"_get_((blas|cublas|cudnn|linalg|math)_(?!allow_tf32)|\w+_sdp_enabled|deterministic_fill)"
)


def _flags() -> Iterator[ProcessSetting]:
    for reader in filter(FLAG.match, dir(torch._C)):
        writer = re.sub(r"^_get_(\w+)_sdp_enabled$", r"_get_sdp_use_\1", reader)
        if write := getattr(torch._C, writer.replace("_get_", "_set_"), None):
            yield ProcessSetting(getattr(torch._C, reader), partial(_spread, write))


def _spread(write: Callable[..., None], value: Any) -> None:
    write(*value if type(value) is tuple else (value,))


# torch has two ways to set the precision of float32. It refuses to read by the older one what was
# set by the newer (``fp32_precision``), of which releases before 2.9 have none.
OLDER = (
    ProcessSetting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    ProcessSetting(torch._C._get_cudnn_allow_tf32, torch._C._set_cudnn_allow_tf32),
)
HAS_NEWER = hasattr(torch._C, "_get_fp32_precision_getter")
NEWER = ("generic", "all"), *product(("cuda", "mkldnn"), ("all", "matmul", "conv", "rnn"))
UNREADABLE = object()


def _value(setting: ProcessSetting) -> Any:
    try:
        return setting.read()
    except Exception:
        return UNREADABLE


def _precision() -> tuple[Any, ...]:
    newer = NEWER if HAS_NEWER else ()
    return (*map(_value, OLDER), *(torch._C._get_fp32_precision_getter(*at) for at in newer))


def _set_precision(wanted: tuple[Any, ...]) -> None:
    for setting, value, now in zip(OLDER, wanted, _precision(), strict=False):
        if value is not UNREADABLE and value != now:
            setting.write(value)
    # The older way has set these too.
    for place, value in zip(NEWER, wanted[len(OLDER) :], strict=False):
        torch._C._set_fp32_precision_setter(*place, value)


def _default_device() -> torch.device | None:
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return context.device if context is not None else None


SETTINGS = (
    *_flags(),
    ProcessSetting(torch.is_grad_enabled, torch._C._set_grad_enabled),
    ProcessSetting(torch.is_anomaly_enabled, torch._C.set_anomaly_enabled),
    ProcessSetting(_precision, _set_precision),
    ProcessSetting(torch.get_default_dtype, torch.set_default_dtype),
    ProcessSetting(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    ProcessSetting(_default_device, torch.set_default_device),
)


def _put(place: int, value: Any) -> None:
    if value is not UNREADABLE:
        with suppress(Exception):
            SETTINGS[place].write(value)


LOADED = re.compile(rf"^{VARIANT_MODULE}_\d+_")
_own: dict[str, dict[int, Any]] = {}  # what the code of each module has set, by place in SETTINGS
_inside = False


@contextmanager
def own_settings(module: str) -> Iterator[None]:
    """The settings inside are those that the code of a module has set, and what it sets inside is
    no other's: as in a process of its own. A variant's modules, loaded anew, are one.
    """
    global _inside
    theirs = _own.setdefault(LOADED.sub("", module), {})
    if _inside:
        yield
        return
    before = [*map(_value, SETTINGS)]
    for place, value in theirs.items():
        _put(place, value)
    at_start = dict(enumerate(before)) | theirs
    _inside = True
    try:
        yield
    finally:
        for place, now in enumerate(map(_value, SETTINGS)):
            if now != before[place]:
                _put(place, before[place])
            if now != at_start[place]:
                theirs[place] = now
        _inside = False


def load_kept(path: Path, name: str) -> ModuleType:
    """Load a variant or a study anew, with the same random numbers at every load. Its functions
    have the settings that its code makes.
    """
    prepare(path)
    with same_draws(), own_settings(name):
        module = load_module(path, name)
        kept = own_settings(module.__name__)  # anew at each call
        for key in ("run", "inputs", "reference", "exact", "plain", "accepts"):
            if callable(function := getattr(module, key, None)):
                setattr(module, key, kept(function))
        if kinds := getattr(module, "adversarial", None):
            vars(module)["adversarial"] = {kind: kept(draw) for kind, draw in kinds.items()}
        return module
