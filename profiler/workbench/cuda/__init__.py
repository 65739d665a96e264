"""What a variant imports to compile and launch a CUDA C++ kernel.

    kernel = cuda.kernel("fix1.cu", "attention_forward")
    kernel[grid, block, shared_bytes](*args)

Compiled by NVRTC through cuda-core on the first launch, for the device at hand; ``compile``
builds for a named architecture and needs no GPU. Torch tensors are passed as pointers; Python
ints and floats take the width of the kernel's own parameter.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from workbench.errors import EnvironmentLacks, ToolFailed, UsageError

if TYPE_CHECKING:
    import torch

Extent = int | tuple[int, ...]
Parameter = bool | int | float | str
Value = TypeVar("Value", bound=Parameter)
STANDARD_OPTIONS = ("--warn-on-spills", "--warn-on-local-memory-usage", "-v")
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"\s*$')
CUBIN_FOLDER = "WORKBENCH_CUBINS"
_declared: list[Kernel] = []


def kernel(
    source: str,
    name: str,
    *,
    defines: Mapping[str, Parameter] | None = None,
    options: tuple[str, ...] = (),
    early_start: bool = False,
) -> Kernel:
    """Declare a kernel of ``source``, a file beside the calling module.

    ``name`` is an ``extern "C"`` function or a template instance such as ``"forward<64>"``.
    ``defines`` become ``-D`` macros, their names in upper case; ``options`` go to ptxas.
    With ``early_start`` a launch may begin before the kernel ahead of it in the stream has ended
    (programmatic dependent launch): the kernel itself waits with ``griddepcontrol.wait``.
    """
    folder = Path(sys._getframe(1).f_globals["__file__"]).resolve().parent
    path = folder / source
    if not path.is_file():
        raise UsageError(f"there is no {source} in {folder.name}/", hint="cuda.kernel names it")
    macros = {
        key.upper(): int(v) if isinstance(v, bool) else v for key, v in (defines or {}).items()
    }
    result = Kernel(path, name, macros, tuple(options), early_start)
    _declared.append(result)
    return result


_overrides: dict[str, Parameter] = {}


def params(**defaults: Value) -> dict[str, Value]:
    """Declare the parameters of a variant, and what they are in this run.

        params = cuda.params(warps=4)

    ``workbench check 'fix2[warps=12]'`` runs the variant with other values. Give them to
    ``kernel(..., defines=params)`` where the kernel needs them, and use them in ``run``.
    """
    given = {name: _overrides[name] for name in defaults if name in _overrides}
    return {**defaults, **cast(dict[str, Value], given)}


@contextmanager
def overridden(values: Mapping[str, Parameter]) -> Iterator[None]:
    """The values ``params`` gives to a module imported inside."""
    _overrides.update(values)
    try:
        yield
    finally:
        _overrides.clear()


class Part(Protocol):
    """A variant's module, as another variant sees it."""

    def run(self, *args: Any, **kwargs: Any) -> torch.Tensor: ...


def variant(name: str, **values: Parameter) -> Part:
    """Another variant of the study, with these values of its parameters: its ``run`` to call.

        short = cuda.variant("fix11", stagger=1)

    For a variant that chooses among kernels, by shape for instance.
    """
    folder = Path(sys._getframe(1).f_globals["__file__"]).resolve().parent
    path = folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"workbench_part_{name}_{len(_declared)}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise UsageError(f"there is no {name}.py in {folder.name}/", hint="cuda.variant names it")
    module = importlib.util.module_from_spec(spec)
    with overridden(values):
        spec.loader.exec_module(module)
    return cast(Part, module)


def take_declared() -> list[Kernel]:
    """The kernels declared since the last call: the ones of the module just imported."""
    taken = list(_declared)
    _declared.clear()
    return taken


@dataclass(frozen=True)
class KernelBuild:
    """What ptxas reports of one kernel; sizes in bytes, registers per thread."""

    kernel: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


@dataclass(frozen=True)
class Compiled:
    arch: str
    kernels: tuple[KernelBuild, ...]
    warnings: tuple[str, ...]


class CompileError(ToolFailed):
    """The compiler refused a source; the message holds its diagnostics with file and line."""


def header_folders() -> list[str]:
    """Folders with ``cuda_fp16.h`` and its like: the toolkit's, else the pip wheels'."""
    found = []
    toolkit = Path("/usr/local/cuda/include")
    if (toolkit / "cuda_fp16.h").is_file():
        found.append(toolkit)
    for entry in sys.path:
        wheel = Path(entry or ".") / "nvidia" / "cu13" / "include"
        if not found and (wheel / "cuda_fp16.h").is_file():
            found.append(wheel)
    return [str(p) for folder in found for p in (folder, folder / "cccl") if p.is_dir()]


def expand_includes(path: Path, seen: set[Path] | None = None) -> str:
    """The source with its local includes in place and ``#line`` marks under virtual names.

    NVRTC would otherwise write this machine's folders into the line table of every capture.
    A file is included once, as with ``#pragma once``.
    """
    seen = seen if seen is not None else set()
    seen.add(path)
    virtual = _virtual(path)
    lines = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        match = _INCLUDE.match(line)
        target = path.parent / match[1] if match else None
        if target is None or not target.is_file():
            lines.append("" if line.strip() == "#pragma once" else line)
        elif target in seen:
            lines.append("")
        else:
            lines += [f'#line 1 "{_virtual(target)}"', expand_includes(target, seen).rstrip("\n")]
            lines.append(f'#line {number + 1} "{virtual}"')
    return "\n".join(lines) + "\n"


def _virtual(path: Path) -> str:
    return f"/workbench/kernels/{path.parent.name}/{path.name}"


_FUNCTION = re.compile(r"Function properties for (\S+)")
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
# ptxas calls it information when it waits after every wgmma, which costs a third of the speed.
_WARNING = re.compile(r"\bwarning\b|potential performance loss", re.IGNORECASE)


def parse_log(log: str) -> tuple[list[KernelBuild], list[str]]:
    """Resources per entry function, and the warnings, from an NVRTC and ptxas ``-v`` log."""
    entries: dict[str, dict[str, int]] = {}
    warnings: list[str] = []
    entry = function = ""
    for line in log.splitlines():
        if _WARNING.search(line):
            warnings.append(" ".join(line.split()))
        elif match := _ENTRY.search(line):
            entry = match[1]
            entries[entry] = {}
        elif match := _FUNCTION.search(line):
            function = match[1]
        elif (match := _STACK.search(line)) and function in entries:
            numbers = map(int, match.groups())
            entries[function].update(
                zip(("stack_bytes", "spill_store_bytes", "spill_load_bytes"), numbers, strict=True)
            )
        elif (match := _REGISTERS.search(line)) and entry:
            shared = _SHARED.search(line)
            entries[entry]["registers"] = int(match[1])
            entries[entry]["shared_bytes"] = int(shared[1]) if shared else 0
    blank = dict.fromkeys(KernelBuild.__dataclass_fields__, 0)
    builds = [KernelBuild(**{**blank, **found, "kernel": name}) for name, found in entries.items()]  # type: ignore[arg-type]
    return builds, warnings


class Kernel:
    """A kernel of a source file, launched as ``kernel[grid, block, shared_bytes](*args)``."""

    def __init__(
        self,
        path: Path,
        name: str,
        defines: dict[str, Parameter],
        options: tuple[str, ...],
        early_start: bool = False,
    ) -> None:
        self.path = path
        self.name = name
        self.defines = defines
        self.options = options
        self.early_start = early_start

    def compile(self, arch: str) -> tuple[Compiled, Any]:
        """Compile for ``arch`` (such as ``sm_90a``); needs NVRTC but no GPU.

        Returns the compiler's report and the cuda-core object code. Raises CompileError with the
        compiler's own message, EnvironmentLacks without cuda-core or its headers.
        """
        try:
            from cuda.core import Program, ProgramOptions
        except ImportError as error:
            raise EnvironmentLacks(
                f"cuda-core cannot be imported: {error}",
                hint="pip install 'kernel-workbench[gpu]'",
            ) from None
        options = ProgramOptions(
            name=_virtual(self.path),
            arch=arch,
            lineinfo=True,
            include_path=header_folders(),
            define_macro=[(key, str(value)) for key, value in self.defines.items()] or None,
            ptxas_options=[*STANDARD_OPTIONS, *self.options],
        )
        source = expand_includes(self.path)
        kept = _kept_cubin(source, arch, self.defines, self.options, self.name)
        if kept is not None and kept.is_file():
            return _restore(kept)
        log = io.StringIO()
        plain = re.fullmatch(r"\w+", self.name) is not None
        try:
            program = Program(source, "c++", options)
            code = program.compile("cubin", () if plain else (self.name,), logs=log)
        except Exception as error:
            text = "\n".join(filter(None, (log.getvalue().strip(), str(error).strip())))
            raise CompileError(
                f"{self.path.name} does not compile for {arch}\n{compiler_message(text)}",
                hint="the compiler's message above names the file and line",
            ) from error
        builds, warnings = parse_log(log.getvalue())
        report = Compiled(arch, tuple(builds), tuple(warnings))
        if kept is not None:
            kept.write_bytes(pickle.dumps((report, bytes(code.code), dict(code.symbol_mapping))))
        return report, code

    @cached_property
    def _loaded(self) -> tuple[Any, list[int]]:
        from cuda.core import Device

        device = Device()
        device.set_current()
        major, minor = device.compute_capability
        _, code = self.compile(f"sm_{major}{minor}{'a' if major >= 9 else ''}")
        loaded = code.get_kernel(self.name)
        return loaded, [info.size for info in loaded.arguments_info]

    def __getitem__(self, where: tuple[Any, ...]) -> Callable[..., None]:
        if len(where) not in (2, 3):
            raise UsageError("launch as kernel[grid, block] or kernel[grid, block, shared_bytes]")
        grid, block = where[0], where[1]
        shared_bytes = int(where[2]) if len(where) == 3 else 0

        def launch(*args: Any) -> None:
            self._launch(grid, block, shared_bytes, args)

        return launch

    def _launch(
        self, grid: Extent, block: Extent, shared_bytes: int, args: tuple[Any, ...]
    ) -> None:
        import torch
        from cuda.core import Device, LaunchConfig, launch

        loaded, sizes = self._loaded
        if len(args) != len(sizes):
            raise UsageError(
                f"{self.name} takes {len(sizes)} arguments, {len(args)} were given",
                hint="compare the call with the kernel's parameters",
            )
        if shared_bytes > 48 * 1024:
            _allow_shared(loaded, shared_bytes)
        handle = torch.cuda.current_stream().cuda_stream
        stream = Device().create_stream(_Stream(handle))
        config = LaunchConfig(
            grid=grid,
            block=block,
            shmem_size=shared_bytes,
            programmatic_stream_serialization=self.early_start,
        )
        launch(stream, config, loaded, *map(_argument, args, sizes))


def _kept_cubin(source: str, *settings: object) -> Path | None:
    """Where the workers of one measurement pass a cubin on; None outside of one.

    ``settings`` are all that a build depends on besides its source.
    """
    folder = os.environ.get(CUBIN_FOLDER)
    if not folder:
        return None
    key = hashlib.sha256(f"{source}\0{settings!r}".encode()).hexdigest()
    return Path(folder) / f"{key}.pickle"


def _restore(kept: Path) -> tuple[Compiled, Any]:
    from cuda.core import ObjectCode

    report, cubin, symbols = pickle.loads(kept.read_bytes())
    return report, ObjectCode.from_cubin(cubin, symbol_mapping=symbols)


class _Stream:
    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def _allow_shared(loaded: Any, shared_bytes: int) -> None:
    """More than 48 KB of dynamic shared memory has to be asked for, per kernel."""
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (status,) = driver.cuKernelSetAttribute(
        attribute, shared_bytes, driver.CUkernel(int(loaded.handle)), driver.CUdevice(0)
    )
    if int(status) != 0:
        raise UsageError(f"a block cannot have {shared_bytes} bytes of shared memory ({status!r})")


def tensor_map(tensor: Any, box: tuple[int, ...]) -> Any:
    """A TMA descriptor of ``tensor`` for copies of ``box``, to be passed to a kernel.

    ``tensor`` is a contiguous torch tensor of fp16 or bf16, ``box`` has as many numbers, in the
    same order. Rows of the box lie in shared memory under the 128-byte swizzle, so its last
    number is 64; what is outside the tensor arrives as zeros.
    """
    import torch
    from cuda.core import _tensor_map as tma
    from cuda.core.utils import StridedMemoryView

    types = {
        torch.float16: tma.TensorMapDataType.FLOAT16,
        torch.bfloat16: tma.TensorMapDataType.BFLOAT16,
    }
    if tensor.dtype not in types:
        raise UsageError(f"a tensor map of {tensor.dtype}: only float16 and bfloat16 are supported")
    view = StridedMemoryView.from_any_interface(tensor.view(torch.int16), stream_ptr=-1)
    return view.as_tensor_map(
        box_dim=box,
        data_type=types[tensor.dtype],
        swizzle=tma.TensorMapSwizzle.SWIZZLE_128B,
        l2_promotion=tma.TensorMapL2Promotion.L2_256B,
    )


def _argument(value: Any, size: int) -> Any:
    import numpy as np

    if hasattr(value, "data_ptr"):
        return value.data_ptr()
    if isinstance(value, bool):
        return np.bool_(value) if size == 1 else np.int32(value)
    if isinstance(value, int) and size == 4:
        return np.int32(value)
    if isinstance(value, float) and size in (4, 8):
        return np.float32(value) if size == 4 else np.float64(value)
    return value


def compiler_message(text: str) -> str:
    """The diagnostics in a compiler log, without ptxas' resource lines."""
    kept = [
        line.strip("\0")
        for line in text.splitlines()
        if line.strip("\0 ") and "ptxas info" not in line and "bytes stack frame" not in line
    ]
    return "\n".join(kept[:40])
