"""Everything that a variant imports to declare, compile and launch a CUDA C++ kernel.

    kernel = cuda.kernel("fix1.cu", "attention_forward")
    kernel[grid, block, shared_bytes](*args)

Compiled by NVRTC through cuda-core on the first launch, for the device at hand; ``compile``
builds for a named architecture and needs no GPU. Torch tensors are passed as pointers; Python
ints and floats take the width of the kernel's own parameter.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from workbench.cuda.compiler import CUBIN_FOLDER, NVCC, NVRTC, PROGRAM
from workbench.cuda.launch import Kernel, tensor_map
from workbench.cuda.programs import within_study
from workbench.errors import UsageError
from workbench.words import Parameter

if TYPE_CHECKING:
    import torch

__all__ = [
    "CUBIN_FOLDER",
    "Kernel",
    "kernel",
    "overridden",
    "params",
    "take_declared",
    "tensor_map",
    "variant",
]

Value = TypeVar("Value", bound=Parameter)
_declared: list[Kernel] = []
_overrides: dict[str, Parameter] = {}


def kernel(
    source: str,
    name: str,
    *,
    defines: Mapping[str, Parameter] | None = None,
    options: tuple[str, ...] = (),
    early_start: bool = False,
    carveout: int | None = None,
    cooperative: bool = False,
    compiler: str = NVRTC,
) -> Kernel:
    """Declare a kernel of ``source``, a file beside the calling module.

    ``name`` is an ``extern "C"`` function or a template instance such as ``"forward<64>"``.
    ``defines`` become ``-D`` macros, their names in upper case; ``options`` go to ptxas.
    With ``early_start`` a launch may begin before the kernel ahead of it in the stream has ended
    (programmatic dependent launch): the kernel itself waits with ``griddepcontrol.wait``.
    ``carveout`` is how much of an SM's L1 is to be shared memory while it runs, in percent of the
    most; by itself the driver gives what the kernel needs, and a kernel that starts early and needs
    more finds no room beside it. Blocks of a ``cooperative`` launch may wait for each other: all
    run at once, or the driver refuses.

    ``compiler`` is "nvrtc", "nvcc", or "program" for a file that has host code as well: nvcc
    compiles that where it is installed, and NVRTC its device code elsewhere. Other folders of
    headers are those of ``CPATH`` then.
    """
    if compiler not in (NVRTC, NVCC, PROGRAM):
        raise UsageError(f"there is no compiler '{compiler}'", hint="nvrtc, nvcc or program")
    if early_start and compiler != NVRTC:
        why = f"{name} has early_start: NVRTC alone is asked whether a kernel waits"
        raise UsageError(why, hint="leave compiler= out")
    path = _beside(sys._getframe(1).f_globals["__file__"], source, "cuda.kernel")
    if carveout is not None and not 0 <= carveout <= 100:
        raise UsageError(f"the carveout of {name} is {carveout}", hint="a percentage, 0 to 100")
    macros = {
        key.upper(): int(v) if isinstance(v, bool) else v for key, v in (defines or {}).items()
    }
    result = Kernel(
        path, name, macros, tuple(options), early_start, compiler, carveout, cooperative
    )
    _declared.append(result)
    return result


def params(**defaults: Value) -> dict[str, Value]:
    """Declare the parameters of a variant, and what they are in this run.

        params = cuda.params(warps=4)

    ``workbench check 'fix2[warps=12]'`` runs the variant with other values. Give them to
    ``kernel(..., defines=params)`` where the kernel needs them, and use them in ``run``.
    """
    chosen = {name: _overrides[name] for name in defaults if name in _overrides}
    return {**defaults, **cast(dict[str, Value], chosen)}


@contextmanager
def overridden(values: Mapping[str, Parameter]) -> Iterator[None]:
    """The values ``params`` gives to a module imported inside; of variants that it imports in turn
    those that it names itself.
    """
    around = dict(_overrides)
    _overrides.clear()
    _overrides.update(values)
    try:
        yield
    finally:
        _overrides.clear()
        _overrides.update(around)


class Part(Protocol):
    """A variant's module, as another variant sees it."""

    def run(self, *args: Any, **kwargs: Any) -> torch.Tensor: ...


def variant(name: str, **values: Parameter) -> Part:
    """Another variant of the study, with these values of its parameters: its ``run`` to call.

        short = cuda.variant("fix11", stagger=1)

    For a variant that chooses among kernels, by shape for instance.
    """
    caller = sys._getframe(1).f_globals
    path = _beside(caller["__file__"], f"{name}.py", "cuda.variant")
    package = f"{caller['__package__']}." if caller.get("__package__") else ""
    called = f"{package}workbench_part_{name}_{len(_declared)}"
    spec = importlib.util.spec_from_file_location(called, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with overridden(values):
        spec.loader.exec_module(module)
    return cast(Part, module)


def _beside(module_file: str, name: str, function: str) -> Path:
    """A file beside the module that names it in a call. Raises UsageError for none, or another."""
    module = Path(module_file).resolve()
    if not within_study(module, name):
        raise UsageError(
            f"{module.name} names {name}, which leaves the folder of its study",
            hint="copy the file beside study.py",
        )
    path = module.parent / name
    if not path.is_file():
        raise UsageError(
            f"there is no {name} in {module.parent.name}/", hint=f"{function} names it"
        )
    return path


def take_declared() -> list[Kernel]:
    """The kernels declared since the last call: the ones of the module just imported."""
    taken = list(_declared)
    _declared.clear()
    return taken
