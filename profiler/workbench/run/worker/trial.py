"""Calls a study's baseline and references once: ``python -m workbench.run.worker.trial job.json``.

What a problem's files do not say: which tensors there are, which of them are only written into,
whether the reference takes doubles, how large its own error is. Where there is no GPU it is done on
the CPU, as far as the code goes there.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from workbench.errors import EnvironmentLacks, GateFailed, UsageError, WorkbenchError
from workbench.problems.given import without
from workbench.run.protocol import Done, ErrorText, Hello, Learned, TrialJob, read_job
from workbench.run.worker.mistakes import in_words, place
from workbench.run.worker.telling import Journal, describe, or_broken
from workbench.study.workspace import load_module

LARGEST_ON_CPU = 1 << 30  # bytes of inputs
MEND = "mend the line named, or the inputs"
Run = Callable[..., Any]


class Trial:
    """Does one job in the current directory."""

    def __init__(self, job: TrialJob) -> None:
        self.job = job
        self.device = torch.device(job.device)
        self.folder = Path.cwd() / "kernels" / job.study
        self.study = load_module(self.folder / "study.py", "workbench_study")
        self.failures: dict[str, ErrorText] = {}
        self.bytes: dict[str, float] = {}
        self.largest = 0.0

    def run(self) -> Learned:
        inputs = self.inputs(self.job.shapes[0])
        found: dict[str, tuple[str, ...]] = {"destinations": (), "in_place": ()}
        errors: dict[str, tuple[float, float]] = {}
        own = self.called(self.job.baseline, inputs)
        if own is not None:
            found = written(self.load(self.job.baseline), inputs)
            inputs = without(inputs, found["destinations"])
        expected, refusal = self.expected(inputs)
        if own is not None:
            errors[self.job.baseline] = error_of(own, expected, self.job.baseline)
        for name in self.job.references:
            out = self.called(name, inputs)
            if out is not None:
                errors[name] = error_of(out, expected, name)
        given = {n: v for n, v in inputs.items() if isinstance(v, torch.Tensor)}
        self.add(self.job.shapes[0], inputs, expected)
        for shape in self.job.shapes[1:]:
            others = without(self.inputs(shape), found["destinations"])
            self.add(shape, others, self.study.plain(others))
        return Learned(
            inputs={n: shown(value) for n, value in given.items()},
            outputs=tuple(map(shown, tensors(expected if own is None else own))),
            destinations=found["destinations"],
            in_place=found["in_place"],
            exact=not refusal,
            refusal=refusal,
            dtype=dtype_of(given),
            bytes=self.bytes,
            largest=self.largest,
            errors=errors,
            accepted=own is not None and self.accepts(inputs, own),
            failures=self.failures,
        )

    def inputs(self, shape: str) -> dict[str, Any]:
        """Raises UsageError for what cannot be the inputs of a call."""
        if self.device.type == "cpu":
            self.require_small(shape)
        found = self.drawn(shape)
        own = {n: v for n, v in found.items() if isinstance(v, torch.Tensor)}
        if not own:
            raise UsageError(
                "the inputs have no tensor", hint="inputs() returns a dict or a tuple of tensors"
            )
        for name, value in own.items():
            if value.device.type != self.device.type:
                raise UsageError(
                    f"the input '{name}' is on the {value.device.type.upper()}, and a kernel "
                    "reads the GPU's memory",
                    hint="make it with device='cuda'",
                )
        return found

    def drawn(self, shape: str) -> dict[str, Any]:
        generator = torch.Generator(self.device).manual_seed(secrets.randbits(32))
        try:
            found: dict[str, Any] = self.study.inputs(self.study.shapes[shape], generator)
        except Exception as error:
            raise in_users_words(error, "the inputs cannot be made") from error
        return found

    def require_small(self, shape: str) -> None:
        """Raises EnvironmentLacks for what would fill a computer; nothing is allocated."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        try:
            with FakeTensorMode():
                size = sum(map(size_of, tensors(tuple(self.drawn(shape).values()))))
        except Exception:  # what cannot be told ahead is tried
            return
        if size > LARGEST_ON_CPU:
            raise EnvironmentLacks(
                f"the inputs have {size / 1e9:.1f} GB, too much to be checked on the CPU",
                hint="try it where there is a GPU",
            )

    def expected(self, inputs: dict[str, Any]) -> tuple[Any, str]:
        """In double precision, and why not, where the reference takes no doubles."""
        try:
            return self.study.exact(inputs), ""
        except WorkbenchError:
            raise
        except Exception as error:
            refusal = describe(error).message
        try:
            return self.study.plain(inputs), refusal
        except Exception as error:
            raise in_users_words(error, "the reference cannot be computed") from error

    def accepts(self, inputs: dict[str, Any], out: Any) -> bool:
        """Whether the study's own check, where it has one, accepts an output. Raises GateFailed
        where it does not.
        """
        check = getattr(self.study, "accepts", None)
        if check is None:
            return False
        try:
            why = str(check(inputs, out))
        except Exception as error:
            raise in_users_words(error, "its own check fails") from error
        if why:
            raise GateFailed(why, hint="the inputs are fresh ones of the same case")
        return True

    def called(self, name: str, inputs: Mapping[str, Any]) -> Any:
        """What a variant makes of copies of the inputs; None where it cannot be called.

        Raises what is wrong with the baseline, but on a machine without a GPU, where it may need
        one.
        """
        try:
            with torch.no_grad():
                out = self.load(name)(**copies(inputs))
            if self.device.type == "cuda":
                torch.cuda.synchronize()
        except NotImplementedError as error:
            self.failures[name] = describe(error)
            return None
        except Exception as error:
            told = in_users_words(error, f"{name} fails")
            usual = isinstance(error, WorkbenchError) and not isinstance(error, EnvironmentLacks)
            if name == self.job.baseline and (self.device.type == "cuda" or usual):
                raise told from error
            self.failures[name] = describe(told)
            return None
        return out if out is not None else self.changed(name, inputs)

    def changed(self, name: str, inputs: Mapping[str, Any]) -> Any:
        """The inputs that a variant changes that returns nothing. Raises GateFailed for none."""
        own = copies(inputs)
        self.load(name)(**own)
        out = tuple(own[n] for n in inputs if is_changed(own[n], inputs[n]))
        if not out:
            called = "the function" if name == self.job.baseline else name
            raise GateFailed(
                f"{called} returned None, and changed none of its inputs",
                hint="return the tensor that it computes",
            )
        return out

    def load(self, name: str) -> Run:
        module: ModuleType = load_module(self.folder / f"{name}.py", f"workbench_tried_{name}")
        run: Run = module.run
        return run

    def add(self, shape: str, inputs: Mapping[str, Any], expected: Any) -> None:
        """What a call at a shape must move. Of inputs with indices among them not all need be read,
        so these are not counted.
        """
        given = [value for value in inputs.values() if isinstance(value, torch.Tensor)]
        mixed = len({value.is_floating_point() for value in given}) > 1
        made = tensors(self.native(expected, inputs))
        size = sum(map(size_of, made)) + (0 if mixed else sum(map(size_of, given)))
        self.bytes[repr(self.study.shapes[shape])] = float(size)
        self.largest = max([self.largest, *map(largest, tensors(expected))])

    def native(self, expected: Any, inputs: Mapping[str, Any]) -> Any:
        """As large as it is in the inputs' own type."""
        kind = next((v.dtype for v in inputs.values()
                     if isinstance(v, torch.Tensor) and v.is_floating_point()), None)  # fmt: skip
        return tuple(t.to(kind) if kind else t for t in tensors(expected))


def tensors(out: Any) -> list[torch.Tensor]:
    """All of one output or of several."""
    if isinstance(out, torch.Tensor):
        return [out]
    if isinstance(out, dict):
        out = tuple(out.values())
    return [t for part in out for t in tensors(part)] if isinstance(out, tuple | list) else []


def copies(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in inputs.items()}


def size_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def largest(tensor: torch.Tensor) -> float:
    finite = tensor[torch.isfinite(tensor)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def shown(tensor: torch.Tensor) -> str:
    """``float32[4096, 8192]``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def dtype_of(given: Mapping[str, torch.Tensor]) -> str:
    """Of the largest input, floating-point ones before others."""
    ranked = sorted(given.values(), key=lambda t: (t.is_floating_point(), size_of(t)))
    return str(ranked[-1].dtype).removeprefix("torch.")


def is_changed(after: Any, before: Any) -> bool:
    if not isinstance(after, torch.Tensor):
        return False
    one, other = (t.contiguous().view(-1).view(torch.uint8) for t in (after, before))
    return not torch.equal(one, other)


def written(run: Run, inputs: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Which inputs a call changes, and of these which it only writes into: what it gives is the
    same whatever stood there.
    """
    own = copies(inputs)
    with torch.no_grad():
        out = run(**own)
    changed = [name for name in inputs if is_changed(own[name], inputs[name])]
    shared = [
        name
        for name, value in own.items()
        if isinstance(value, torch.Tensor)
        and any(t.untyped_storage().data_ptr() == value.untyped_storage().data_ptr()
                for t in tensors(out))
    ]  # fmt: skip
    results = tensors(out) or [own[name] for name in changed]
    only_written = []
    for name in dict.fromkeys([*changed, *shared]):
        other = copies(inputs)
        value = other[name]
        value.fill_(float("nan") if value.is_floating_point() else 1)
        with torch.no_grad():
            again = tensors(run(**other)) or [other[n] for n in changed]
        if all(torch.allclose(a.double(), b.double(), rtol=1e-2, atol=1e-3, equal_nan=False)
               for a, b in zip(results, again, strict=True)):  # fmt: skip
            only_written.append(name)
    return {
        "destinations": tuple(only_written),
        "in_place": tuple(name for name in changed if name not in only_written),
    }


def error_of(out: Any, expected: Any, name: str) -> tuple[float, float]:
    """Largest absolute error and that relative in norm, of all outputs. Raises GateFailed for
    outputs of another number or shape.
    """
    ours, theirs = tensors(out), tensors(expected)
    if not ours:
        raise GateFailed(
            f"{name} returned {type(out).__name__}, not a tensor", hint="return tensors"
        )
    if [t.shape for t in ours] != [t.shape for t in theirs]:
        raise GateFailed(
            f"{name} returns {', '.join(map(shown, ours))}, and the reference "
            f"{', '.join(str(list(t.shape)) for t in theirs)}",
            hint="do both compute the same of these inputs? --vs may name a call with arguments",
        )
    worst = (0.0, 0.0)
    for one, other in zip(ours, theirs, strict=True):
        difference = one.double() - other.double()
        norm = float(other.double().norm())
        absolute, whole = float(difference.abs().max()), float(difference.norm())
        worst = max(worst[0], absolute), max(worst[1], whole / norm if norm else whole)
    return worst


def in_users_words(error: Exception, doing: str) -> WorkbenchError:
    """With the user's own file and line."""
    if isinstance(error, WorkbenchError):
        return error
    kind = type(error)
    if told := in_words(error):
        lacks = isinstance(error, ModuleNotFoundError)
        return (EnvironmentLacks if lacks else GateFailed)(told.message, hint=told.hint or MEND)
    first = (str(error).strip().splitlines() or [""])[0]
    where = f"{at}: " if (at := place(error)) else ""
    hint = "try smaller inputs" if kind.__name__ == "OutOfMemoryError" else MEND
    return GateFailed(f"{where}{doing}: {kind.__name__}: {first}", hint=hint)


class OnCpu(TorchFunctionMode):
    """What is asked to be on a GPU is on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if str(given.get("device", "")).startswith("cuda"):
            given["device"] = "cpu"
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.to:
            args = tuple("cpu" if _is_gpu(value) else value for value in args)
        return func(*args, **given)


def _is_gpu(value: Any) -> bool:
    return isinstance(value, str | torch.device) and str(value).startswith("cuda")


@contextmanager
def on_cpu() -> Iterator[None]:
    """Also generators."""
    own = torch.Generator

    class Generator:
        def __new__(cls, device: Any = "cpu") -> Any:
            return own("cpu")

    torch.Generator = Generator  # type: ignore[misc]
    try:
        with OnCpu():
            yield
    finally:
        torch.Generator = own  # type: ignore[misc]


def main() -> None:
    job = read_job(Path(sys.argv[1]))
    assert isinstance(job, TrialJob)
    with Journal(Path.cwd()) as journal, or_broken(journal):
        journal.write(Hello(pid=os.getpid()))
        with on_cpu() if job.device == "cpu" else nullcontext():
            journal.write(Trial(job).run())
        journal.write(Done())


if __name__ == "__main__":
    main()
