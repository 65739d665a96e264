"""Launches a kernel, compiled when it is first needed, on torch's current stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench.cuda.build import Compiled, Source, arch_of
from workbench.cuda.carried import code_of
from workbench.errors import UsageError
from workbench.words import Parameter

Extent = int | tuple[int, ...]
SHARED_BY_DEFAULT = 48 * 1024  # bytes; more has to be asked for


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
        compiler's own message, or for one that starts early and never waits, and EnvironmentLacks
        without cuda-core or its headers.
        """
        return self.source.compile(arch)

    @property
    def source(self) -> Source:
        """What it is compiled from."""
        return Source(self.path, self.name, self.defines, self.options, self.early_start)

    @property
    def shown_defines(self) -> str:
        """The macros in words: ``D=64 WARPS=4``."""
        return " ".join(f"{key}={value}" for key, value in self.defines.items())

    @cached_property
    def _loaded(self) -> tuple[Any, list[int]]:
        from cuda.core import Device

        device = Device()
        device.set_current()
        code = code_of(self.source, arch_of(*device.compute_capability))
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
        device = Device()
        if shared_bytes > SHARED_BY_DEFAULT:
            _allow_shared(loaded, shared_bytes, device.device_id)
        handle = torch.cuda.current_stream().cuda_stream
        stream = device.create_stream(_Stream(handle))
        config = LaunchConfig(
            grid=grid,
            block=block,
            shmem_size=shared_bytes,
            programmatic_stream_serialization=self.early_start,
        )
        launch(stream, config, loaded, *map(_argument, args, sizes))


class _Stream:
    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def _allow_shared(loaded: Any, shared_bytes: int, device: int) -> None:
    """More than 48 KB of dynamic shared memory has to be asked for, per kernel and device."""
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    (status,) = driver.cuKernelSetAttribute(
        attribute, shared_bytes, driver.CUkernel(int(loaded.handle)), driver.CUdevice(device)
    )
    if int(status) != 0:
        raise UsageError(f"a block cannot have {shared_bytes} bytes of shared memory ({status!r})")


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
