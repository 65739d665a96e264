"""Find what a variant's code has changed and may not, in the worker that it shares with others.

Functions and classes of this package, of torch and of what clocks and draws, objects that measure,
and threads: they are noted before the first variant is loaded, compared after each has run, and put
back, so that who changes them costs only itself. It is no defence against native code that writes
memory.
"""

from __future__ import annotations

import gc
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import torch

# Those that may be loaded: this package's own are all protected.
PROTECTED = (
    *("builtins", "gc", "hashlib", "math", "msgspec", "numpy", "os", "random", "secrets"),
    *("statistics", "time", "torch", "torch.linalg", "torch.nn.functional", "torch.random"),
    *("torch.cuda", "torch.cuda.graphs", "torch.cuda.memory", "torch.cuda.nvtx"),
    *("torch.cuda.random", "torch.cuda.streams", "cuda.core", "pynvml"),
)
OWN = "workbench"
# What Python itself puts into classes when they are first used so (pickle, abc, annotations).
PLACED = (
    "__slotnames__",
    "__abstractmethods__",
    "_abc_impl",
    "__annotations__",
    "__annotate_cache__",
)
MISSING = object()
PLACED_IN = ("torch.manual_seed", "torch.cuda.graphs.graph.default_capture_stream")
STDLIB = sysconfig.get_path("stdlib")
OUR_OWN = str(Path(__file__).parents[2])
LIBRARIES = (
    *(sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), OUR_OWN),
    # And wherever else packages were installed: a user's own folder, that of `pip --target`.
    *(f"{Path(entry)}/" for entry in sys.path if entry and any(Path(entry).glob("*.dist-info"))),
)


@dataclass(frozen=True)
class Alteration:
    """A thing that is not as it was, in words, and how to put it back."""

    what: str
    restore: Callable[[], None]


class IntegritySnapshot:
    """Everything as it is now."""

    def __init__(self) -> None:
        names = [n for n in sys.modules if n == OWN or n.startswith(f"{OWN}.")]
        self._modules = {n: sys.modules[n] for n in (*PROTECTED, *names) if n in sys.modules}
        self._entries = {name: _things(module) for name, module in self._modules.items()}
        self._classes = {kind: dict(vars(kind)) for kind in _classes(self._modules)}
        self._code = {f: _body(f) for f in self._functions()}
        self._names = {name: frozenset(vars(module)) for name, module in self._modules.items()}
        self._threads = set(sys._current_frames())
        self._callbacks = list(gc.callbacks)
        self._stream = _stream()
        self._protected: dict[int, tuple[Any, Parts]] = {}

    def also(self, module: ModuleType) -> None:
        """Note a study's or variant's module when it is loaded: it is nobody else's."""
        name = module.__name__
        self._modules[name] = module
        self._entries[name] = _things(module)
        self._names[name] = frozenset(vars(module))
        self._classes |= {kind: dict(vars(kind)) for kind in _classes({name: module})}
        bodies = (_function(value) for value in self._entries[name].values())
        self._code |= {f: _body(f) for f in bodies if f is not None}

    def protect(self, *owners: Any) -> None:
        """Objects whose attributes nobody may change from now on, or what these contain; those of
        their ``CHANGING`` are their own affair.
        """
        self._protected |= {id(owner): (owner, _parts(owner)) for owner in owners}

    def release(self, owners: Iterable[Any]) -> None:
        """Objects that are protected no longer."""
        for owner in owners:
            self._protected.pop(id(owner), None)

    def changed(self, own: str = "") -> str:
        """Return what was changed, ``changes torch.cuda.CUDAGraph.replay``, or "" for nothing.

        ``own`` is the name of the module that has just run: it may change itself, and nobody else
        is blamed for it later.
        """
        change = next((c for c in self._changes() if not own or f" {own}." not in c.what), None)
        if change is None and own in self._modules:
            self.also(self._modules[own])
        return change.what if change else ""

    def restore(self) -> None:
        """Puts everything back. What cannot be, a thread for one, is from now on as it should be:
        nobody else is blamed for it.
        """
        for change in list(self._changes()):
            with suppress(Exception):
                change.restore()
        self._threads = set(sys._current_frames())
        self.protect(*(owner for owner, _ in self._protected.values()))

    def _functions(self) -> Iterator[FunctionType]:
        for entries in (*self._entries.values(), *self._classes.values()):
            for value in entries.values():
                function = _function(value)
                if function is not None:
                    yield function

    def _changes(self) -> Iterator[Alteration]:
        yield from self._changed_modules()
        yield from self._changed_entries()
        yield from self._changed_classes()
        yield from self._changed_code()
        yield from self._changed_protected()
        yield from self._changed_hooks()

    def _is_same(self, now: Any, before: Any) -> bool:
        """Compare in C, by identity first; what cannot be compared is not the same."""
        try:
            return bool(now == before)
        except Exception:
            return False

    def _changed_modules(self) -> Iterator[Alteration]:
        for name, module in self._modules.items():
            if sys.modules.get(name) is not module:
                yield Alteration(
                    f"changes sys.modules['{name}']",
                    partial(sys.modules.__setitem__, name, module),
                )

    def _changed_entries(self) -> Iterator[Alteration]:
        for name, before in self._entries.items():
            module = self._modules[name]
            now = vars(module)
            values = list(map(now.get, before))
            if now.keys() == self._names[name] and self._is_same(values, list(before.values())):
                continue
            for key, value in before.items():
                if now.get(key, MISSING) is not value and f"{name}.{key}" not in PLACED_IN:
                    yield Alteration(f"changes {name}.{key}", partial(setattr, module, key, value))
            for key in _shadows(name, now, self._names[name]):
                yield Alteration(f"adds {name}.{key}", partial(delattr, module, key))

    def _changed_classes(self) -> Iterator[Alteration]:
        for kind, before in self._classes.items():
            now = vars(kind)
            if self._is_same(now, before):
                continue
            called = f"{kind.__module__}.{kind.__qualname__}"
            for key, value in before.items():
                place = f"{called}.{key}"
                if key in PLACED or place in PLACED_IN:
                    continue
                if now.get(key, MISSING) is not value:
                    yield Alteration(f"changes {called}.{key}", partial(setattr, kind, key, value))
            for key in [key for key in now if key not in before and key not in PLACED]:
                yield Alteration(f"adds {called}.{key}", partial(delattr, kind, key))

    def _changed_code(self) -> Iterator[Alteration]:
        if self._is_same(list(map(_body, self._code)), list(self._code.values())):
            return
        for function, body in self._code.items():
            if not self._is_same(_body(function), body):
                called = f"{function.__module__}.{function.__qualname__}"
                yield Alteration(
                    f"changes the code of {called}", partial(_put_body, function, body)
                )

    def _changed_hooks(self) -> Iterator[Alteration]:
        if gc.callbacks != self._callbacks:
            yield Alteration("adds to gc.callbacks", self._restore_callbacks)
        if self._stream is not None and _stream() != self._stream:
            yield Alteration("changes the current stream", _restore_stream)
        if where := _another_thread(self._threads):
            yield Alteration(f"keeps a thread running in {where}", _nothing)

    def _changed_protected(self) -> Iterator[Alteration]:
        for owner, before in self._protected.values():
            called, now = type(owner).__name__, vars(owner)
            for key, (value, inside) in before.items():
                present = now.get(key, MISSING)
                if present is not value and not self._is_same(present, value):
                    yield Alteration(f"changes {called}.{key}", partial(setattr, owner, key, value))
                elif inside is not None and not _same_objects(inside, _inside(value)):
                    restore = partial(_put_inside, value, inside)
                    yield Alteration(f"changes what is in {called}.{key}", restore)
            for key in now.keys() - before.keys():
                if isinstance(getattr(type(owner), key, None), FunctionType):
                    yield Alteration(f"adds {called}.{key}", partial(delattr, owner, key))

    def _restore_callbacks(self) -> None:
        gc.callbacks[:] = self._callbacks


def _things(module: ModuleType) -> dict[str, object]:
    """Keep what is no plain value of a module: functions, classes and modules."""
    return {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, FunctionType | BuiltinFunctionType | ModuleType | type)
        or (callable(value) and not key.startswith("__"))
    }


def _classes(modules: dict[str, ModuleType]) -> list[type]:
    """List classes defined in protected modules, with what they inherit of C++."""
    classes: dict[type, None] = {}
    for module in modules.values():
        for value in list(vars(module).values()):
            if isinstance(value, type) and value.__module__ in modules:
                classes |= dict.fromkeys(base for base in value.__mro__ if _can_change(base))
    return list(classes)


def _can_change(kind: type) -> bool:
    """Heap types alone can be changed; see Py_TPFLAGS_HEAPTYPE and Py_TPFLAGS_IMMUTABLETYPE."""
    return bool(kind.__flags__ & (1 << 9)) and not kind.__flags__ & (1 << 8)


def _function(value: object) -> FunctionType | None:
    inner = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
    return inner if isinstance(inner, FunctionType) else None


Body = tuple[CodeType, Any, Any]

_body: Callable[[FunctionType], Body] = attrgetter("__code__", "__defaults__", "__kwdefaults__")


def _put_body(function: FunctionType, body: Body) -> None:
    function.__code__, function.__defaults__, function.__kwdefaults__ = body


def _shadows(name: str, now: dict[str, object], before: frozenset[str]) -> list[str]:
    """New names that stand before Python's own, and any new function in this package."""
    is_ours = name == OWN or name.startswith(f"{OWN}.")
    builtin = vars(sys.modules["builtins"])
    return [
        key
        for key, value in now.items()
        if key not in before
        and (
            (key in builtin and name != "builtins") or (is_ours and isinstance(value, FunctionType))
        )
        and not key.startswith("__")
    ]


def _stream() -> int | None:
    """None where torch has not begun to use the GPU."""
    return torch.cuda.current_stream().cuda_stream if torch.cuda.is_initialized() else None


def _restore_stream() -> None:
    torch.cuda.set_stream(torch.cuda.default_stream())


Parts = dict[str, tuple[Any, tuple[Any, ...] | None]]  # the value of each attribute, and its own


def _parts(owner: Any) -> Parts:
    changing = getattr(owner, "CHANGING", ())
    return {k: (v, _inside(v)) for k, v in vars(owner).items() if k not in changing}


def _inside(value: Any) -> tuple[Any, ...] | None:
    if isinstance(value, dict):
        return tuple(value.items())
    return tuple(value) if isinstance(value, list) else None


def _same_objects(first: tuple[Any, ...], second: tuple[Any, ...] | None) -> bool:
    """Compare two lists, or the items of two dicts, by identity."""

    def flat(parts: tuple[Any, ...]) -> list[Any]:
        return [x for part in parts for x in (part if isinstance(part, tuple) else (part,))]

    left, right = flat(first), flat(second or ())
    same = len(left) == len(right)
    return same and all(a is b or (type(a) is int and a == b) for a, b in zip(left, right))  # noqa: B905


def _put_inside(value: dict[Any, Any] | list[Any], inside: tuple[Any, ...]) -> None:
    value.clear()
    value.update(inside) if isinstance(value, dict) else value.extend(inside)


def _another_thread(known_threads: set[int]) -> str:
    """File and line at which another thread runs anything but Python's own code, a library's or
    ours: torch's compiler has threads, too. Or what one that waits in Python's own will run.
    """
    for thread, innermost in sys._current_frames().items():
        frame: FrameType | None = innermost
        while frame is not None and thread not in known_threads:
            if is_users(frame.f_code):
                return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            frame = frame.f_back
    for other in threading.enumerate():
        for name in ("_target", "function", "run"):
            called = getattr(other, name, None)
            while isinstance(called, partial):
                called = called.func
            code = getattr(called, "__code__", None)
            if other.ident not in known_threads and code is not None and is_users(code):
                return f"{Path(code.co_filename).name}:{code.co_firstlineno}"
    return ""


def is_users(code: CodeType) -> bool:
    """Neither Python's own nor of an installed package."""
    return not code.co_filename.startswith(("<frozen", STDLIB, *LIBRARIES))


def _nothing(*anything: Any) -> None:
    """A thread ends with the process."""
