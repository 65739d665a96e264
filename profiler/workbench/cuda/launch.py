"""Launches a kernel, compiled when first needed, on torch's current stream; TMA descriptors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from math import prod
from types import SimpleNamespace
from typing import Any, NamedTuple

from workbench.cuda.compiler import Source, arch_of
from workbench.errors import UsageError

Extent = int | tuple[int, ...]
MOST_BLOCKS, MOST_THREADS = (2**31 - 1, 65535, 65535), (1024, 1024, 64)  # by axis
SHARED_BY_DEFAULT = 48 * 1024  # bytes, static and dynamic together; more has to be asked for


@dataclass(eq=False)
class Kernel(Source):
    """A kernel of a source file, launched as ``kernel[grid, block, shared_bytes](*args)``."""

    carveout: int | None = None
    cooperative: bool = False

    def __post_init__(self) -> None:
        self._carved: set[int] = set()  # devices where the driver knows
        self._shared: dict[int, tuple[int, int]] = {}  # by device, see _static_and_most
        self._allowed: dict[int, int] = {}  # by device, dynamic bytes that the driver knows of

    @cached_property
    def _loaded(self) -> tuple[Any, list[int]]:
        from cuda.core import Device

        device = Device()
        device.set_current()
        _, code = self.compile(arch_of(*device.compute_capability))
        loaded = code.get_kernel(self.name)
        return loaded, [info.size for info in loaded.arguments_info]

    def __getitem__(self, where: tuple[Any, ...]) -> Callable[..., None]:
        if len(where) not in (2, 3):
            raise UsageError("launch as kernel[grid, block] or kernel[grid, block, shared_bytes]")
        return partial(self._launch, where[0], where[1], int(where[2]) if len(where) == 3 else 0)

    def _launch(self, grid: Extent, block: Extent, shared_bytes: int, *args: Any) -> None:
        loaded, sizes = self._loaded  # first: without a GPU it says so
        host = _host()
        if len(args) != len(sizes):
            raise UsageError(
                f"{self.name} takes {len(sizes)} arguments, {len(args)} were given",
                hint="compare the call with the kernel's parameters",
            )
        device = host.device().device_id
        if shared_bytes > self._allowed.get(device, 0):
            self._allow_shared(int(loaded.handle), shared_bytes, device)
        if self.carveout is not None and device not in self._carved:
            self._carve(int(loaded.handle), self.carveout, device)
        stream = _stream(device, host.stream(device))
        try:
            config = _config(grid, block, shared_bytes, self.must_wait, self.cooperative)
            host.launch(stream, config, loaded, *map(_argument, args, sizes))
        except Exception as error:
            why = self._fault(grid, block, args, device)
            if not why and self.cooperative and "COOPERATIVE" in str(error):
                why = f"a cooperative grid of {grid} blocks of {self.name} does not fit at once"
            if not why:
                raise
            raise UsageError(why, hint="change the launch, or what the kernel takes") from error

    def _fault(self, grid: Extent, block: Extent, args: tuple[Any, ...], device: int) -> str:
        """Say why the driver refuses a launch; "" where arguments and extents are not the cause."""
        loaded, sizes = self._loaded
        for place, (value, bytes_of) in enumerate(zip(args, sizes, strict=True), start=1):
            if type(value) is int and bytes_of == 4 and not -(2**31) <= value < 2**31:
                return f"argument {place} of {self.name} is {value}, which no int of 4 bytes holds"
        blocks, size = (
            (extent,) if isinstance(extent, int) else tuple(extent) for extent in (grid, block)
        )
        for what, extent, limits in (("grid", blocks, MOST_BLOCKS), ("block", size, MOST_THREADS)):
            for axis, value, most in zip("xyz", extent, limits, strict=False):
                if not 1 <= value <= most:
                    which = "less than 1" if value < 1 else f"more than {most}"
                    return f"{what}.{axis} of {self.name} is {value}, {which}"
        threads, cluster = _limits(int(loaded.handle), device)
        threads = threads or MOST_THREADS[0]
        if prod(size) > threads:
            return (
                f"a block of {prod(size)} threads is more than the {threads} that {self.name} "
                "allows: by its __launch_bounds__, or by its registers"
            )
        for axis, value, of in zip("xyz", blocks, cluster, strict=False):
            if of > 1 and value % of:
                where = f"grid.{axis} of {self.name} is {value}"
                return f"{where}, which is no multiple of its cluster of {of}"
        return ""

    def _allow_shared(self, kernel: int, dynamic: int, device: int) -> None:
        """More than 48 KB of a block's shared memory has to be asked for, per kernel and device.
        Raises UsageError for more than a block can have.
        """
        if dynamic <= self._allowed.get(device, 0):
            return
        from cuda.bindings import driver

        if device not in self._shared:
            self._shared[device] = _static_and_most(self.name, kernel, device)
        static, most = self._shared[device]
        if static + dynamic > SHARED_BY_DEFAULT:
            if static + dynamic > most:
                tiles = "use smaller or fewer tiles"
                raise UsageError(
                    f"{self.name} needs {static + dynamic} bytes of shared memory a block, "
                    f"{static} static and {dynamic} dynamic, and this GPU gives a block {most} at "
                    "most",
                    hint=f"launch it with {most - static} bytes or fewer: {tiles}"
                    if static < most
                    else tiles,
                )
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            handle, number = driver.CUkernel(kernel), driver.CUdevice(device)
            _answer_of(self.name, driver.cuKernelSetAttribute(attribute, dynamic, handle, number))
        self._allowed[device] = dynamic

    def _carve(self, kernel: int, percent: int, device: int) -> None:
        from cuda.bindings import driver

        wish = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        handle, number = driver.CUkernel(kernel), driver.CUdevice(device)
        _answer_of(self.name, driver.cuKernelSetAttribute(wish, percent, handle, number))
        self._carved.add(device)


class _Host(NamedTuple):
    """The driver functions that a launch calls, looked up once."""

    device: Callable[[], Any]
    launch: Callable[..., None]
    stream: Callable[[int], int]  # the handle of a device's current stream


# What a launch needs beside its arguments is made once: the host would take longer over it than the
# driver over the launch.
@cache
def _host() -> _Host:
    import torch
    from cuda.core import Device, launch

    # torch.cuda.current_stream makes an object around it, in as long as a launch takes.
    return _Host(Device, launch, torch._C._cuda_getCurrentRawStream)


@lru_cache(maxsize=64)
def _stream(device: int, handle: int) -> Any:
    """torch's stream of the current device, as cuda-core knows it."""
    from cuda.core import Device

    return Device(device).create_stream(_Stream(handle))


@lru_cache(maxsize=1024)
def _config(
    grid: Extent, block: Extent, shared_bytes: int, early_start: bool, cooperative: bool
) -> Any:
    from cuda.core import LaunchConfig

    return LaunchConfig(
        grid=grid,
        block=block,
        shmem_size=shared_bytes,
        is_cooperative=cooperative,
        programmatic_stream_serialization=early_start,
    )


def _static_and_most(name: str, kernel: int, device: int) -> tuple[int, int]:
    """Bytes of shared memory that a kernel declares, and that a block of a device may have."""
    from cuda.bindings import driver

    static_size = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
    its = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    number = driver.CUdevice(device)
    (static,) = _answer_of(
        name, driver.cuKernelGetAttribute(static_size, driver.CUkernel(kernel), number)
    )
    (most,) = _answer_of(name, driver.cuDeviceGetAttribute(its, number))
    return static, most


def _answer_of(name: str, answer: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what the driver gives beside its status. Raises UsageError unless it is a success."""
    status, *values = answer
    if int(status) != 0:
        raise UsageError(f"the shared memory of {name} cannot be set ({status!r})")
    return tuple(values)


def _limits(kernel: int, device: int) -> tuple[int, tuple[int, ...]]:
    """Threads that a block of a kernel may have, and its cluster; zeros where that is unknown."""
    from cuda.bindings import driver

    of, number = driver.CUfunction_attribute, driver.CUdevice(device)
    names = ["CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK"]
    names += [f"CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_{s}" for s in ("WIDTH", "HEIGHT", "DEPTH")]
    answers = [
        driver.cuKernelGetAttribute(getattr(of, name), driver.CUkernel(kernel), number)
        for name in names
    ]
    values = [0 if int(status) else value for status, value in answers]
    return values[0], tuple(values[1:])


class _Stream:
    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def _argument(value: Any, size: int) -> Any:
    kind: Any = type(value)
    return _passed(kind, size)(value)


@cache
def _passed(kind: type, size: int) -> Callable[[Any], Any]:
    """How a kind of argument is passed where the kernel has so many bytes for it."""
    from numpy import bool_, float32, float64, int32

    if issubclass(kind, bool):
        return bool_ if size == 1 else int32
    if issubclass(kind, int) and size == 4:
        return int32
    if issubclass(kind, float) and size in (4, 8):
        return float32 if size == 4 else float64
    return kind.data_ptr if hasattr(kind, "data_ptr") else lambda value: value


SWIZZLED_BYTES, PIECE = 128, 16  # of a row of a box in shared memory
MOST = 256  # along one dimension of a box


def tensor_map(tensor: Any, box: tuple[int, ...], *, swizzled: bool = True) -> Any:
    """A TMA descriptor of ``tensor`` for copies of ``box``, to be passed to a kernel.

    ``tensor`` is a contiguous torch tensor of fp32, fp16 or bf16 whose rows begin at multiples of
    16 bytes, ``box`` has as many numbers, in the same order, none above 256. Rows of the box lie in
    shared memory under the 128-byte swizzle, so that its last number is 32 in fp32 and 64 else; not
    ``swizzled`` they lie as they are, in whole pieces of 16 bytes. What is outside the tensor
    arrives as zeros.
    """
    where = (tensor.device.index, tensor.data_ptr())
    return _described(*where, tensor.shape, tensor.stride(), tensor.dtype, tuple(box), swizzled)


# A model passes the same addresses at every step, and the host takes longer over a descriptor than
# over a launch. It depends on these values alone.
@lru_cache(maxsize=1024)
def _described(
    device: int | None,
    pointer: int,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: Any,
    box: tuple[int, ...],
    swizzled: bool,
) -> Any:
    import torch

    # as_tensor_map is public; the enumerations of its arguments are not (as of cuda-core 1.2).
    from cuda.core import _tensor_map as tma
    from cuda.core.utils import StridedMemoryView

    types = {
        torch.float32: tma.TensorMapDataType.FLOAT32,
        torch.float16: tma.TensorMapDataType.FLOAT16,
        torch.bfloat16: tma.TensorMapDataType.BFLOAT16,
    }
    if dtype not in types:
        raise UsageError(
            f"a tensor map of {dtype}: only float32, float16 and bfloat16 are supported"
        )
    size = dtype.itemsize
    wide, piece = SWIZZLED_BYTES // size, PIECE // size
    fits = box[-1] == wide if swizzled else box[-1] % piece == 0
    if len(box) != len(shape) or max(box) > MOST or not fits:
        last = wide if swizzled else f"a multiple of {piece}"
        raise UsageError(
            f"a tensor map of {len(shape)} dimensions of {dtype} for boxes of {box}",
            hint=f"a number for each dimension, none above {MOST}, the last of them {last}",
        )
    place = {
        "shape": tuple(shape),
        "strides": tuple(step * size for step in stride),
        "typestr": f"<i{size}",
        "data": (pointer, False),
        "version": 3,
    }
    bare = SimpleNamespace(__cuda_array_interface__=place)  # nothing that would keep the memory
    view = StridedMemoryView.from_cuda_array_interface(bare, stream_ptr=-1)
    return view.as_tensor_map(
        box_dim=box,
        data_type=types[dtype],
        swizzle=tma.TensorMapSwizzle.SWIZZLE_128B if swizzled else tma.TensorMapSwizzle.NONE,
        l2_promotion=tma.TensorMapL2Promotion.L2_256B,
    )
