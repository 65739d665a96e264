"""What a launch asks of the driver before it, by a driver that answers what it is told to."""

from __future__ import annotations

import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from answers import Patch
from workbench import cuda
from workbench.cuda import launch
from workbench.cuda.launch import Kernel
from workbench.errors import UsageError
from workbench.study.workspace import load_module

driver: Any = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

KB = 1024
OPTIN = 227 * KB  # what a block of an H200 can have


class Answers:
    """Of a kernel with so many static bytes; ``asked`` are the dynamic bytes asked for."""

    def __init__(self, static: int, status: int = 0) -> None:
        self.static, self.status = static, status
        self.asked: list[int] = []
        self.looked = 0

    def kernel(self, attribute: Any, kernel: Any, device: Any) -> tuple[int, int]:
        self.looked += 1
        assert attribute == driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
        return self.status, self.static

    def device(self, attribute: Any, device: Any) -> tuple[int, int]:
        assert attribute.name == "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"
        return self.status, OPTIN

    def set(self, attribute: Any, value: int, kernel: Any, device: Any) -> tuple[int]:
        assert attribute.name == "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
        self.asked.append(value)
        return (self.status,)


def asking(monkeypatch: Patch, static: int, dynamic: int, status: int = 0) -> Answers:
    answers = Answers(static, status)
    monkeypatch.setattr(driver, "cuKernelGetAttribute", answers.kernel)
    monkeypatch.setattr(driver, "cuDeviceGetAttribute", answers.device)
    monkeypatch.setattr(driver, "cuKernelSetAttribute", answers.set)
    kernel = Kernel(Path("tile.cu"), "tile", {}, ())
    for bytes_of_launch in (dynamic, dynamic, dynamic - 16):
        kernel._allow_shared(1, bytes_of_launch, 0)
    return answers


@pytest.mark.parametrize(
    ("static", "dynamic", "asked"),
    [
        (0, 48 * KB, False),
        (0, 48 * KB + 16, True),
        (32 * KB, 16 * KB, False),
        (32 * KB, 16 * KB + 16, True),  # neither is above 48 KB by itself
        (40 * KB, OPTIN - 40 * KB, True),
    ],
)
def test_static_and_dynamic_shared_memory_count_together(
    static: int, dynamic: int, asked: bool, monkeypatch: Patch
) -> None:
    answers = asking(monkeypatch, static, dynamic)
    assert answers.asked == ([dynamic] if asked else [])  # and not again for as much or less
    assert answers.looked == 1  # what does not change is asked once a device


def test_more_than_a_block_can_have_is_refused_before_the_launch(monkeypatch: Patch) -> None:
    with pytest.raises(UsageError) as told:
        asking(monkeypatch, 40 * KB, 200 * KB)
    assert told.value.message == (
        "tile needs 245760 bytes of shared memory a block, 40960 static and 204800 dynamic, and "
        "this GPU gives a block 232448 at most"
    )
    assert told.value.hint == "launch it with 191488 bytes or fewer: use smaller or fewer tiles"
    assert told.value.exit_code == 2


def test_static_memory_alone_may_be_too_much(monkeypatch: Patch) -> None:
    with pytest.raises(UsageError) as told:
        asking(monkeypatch, OPTIN + 16, 16)
    assert "launch it with" not in str(told.value.hint)


def test_a_driver_that_refuses_is_told(monkeypatch: Patch) -> None:
    with pytest.raises(UsageError, match="shared memory of tile cannot be set"):
        asking(monkeypatch, 0, 64 * KB, status=1)


def test_a_carveout_is_asked_for_as_it_was_declared(monkeypatch: Patch) -> None:
    asked = []

    def answer(attribute: Any, value: int, kernel: Any, device: Any) -> tuple[int]:
        asked.append((attribute.name, value))
        return (0,)

    monkeypatch.setattr(driver, "cuKernelSetAttribute", answer)
    kernel = Kernel(Path("tile.cu"), "tile", {}, (), carveout=72)
    kernel._carve(1, 72, 0)
    assert asked == [("CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT", 72)]
    assert kernel._carved == {0}


class Loaded:
    handle = 5


def test_a_launch_goes_to_the_current_stream_of_the_current_device(monkeypatch: Patch) -> None:
    launched: list[tuple[Any, ...]] = []
    host = SimpleNamespace(
        device=lambda: SimpleNamespace(device_id=1),
        stream=lambda device: {1: 70 + len(launched)}[device],
        launch=lambda *given: launched.append(given),
    )
    monkeypatch.setattr(launch, "_host", lambda: host)
    monkeypatch.setattr(launch, "_stream", lambda device, handle: (device, handle))
    monkeypatch.setattr(launch, "_config", lambda *config: config)
    kernel = Kernel(Path("tile.cu"), "tile", {}, ())
    kernel.__dict__["_loaded"] = (Loaded, [8, 4])
    monkeypatch.setattr(kernel, "_allow_shared", lambda *asked: launched.append(asked))
    tensor = torch.zeros(4)
    kernel[2, 128](tensor, 3)
    kernel[(2, 1), 128, 64](tensor, 3)
    assert launched == [
        ((1, 70), (2, 128, 0, False, False), Loaded, tensor.data_ptr(), 3),
        (5, 64, 1),
        ((1, 72), ((2, 1), 128, 64, False, False), Loaded, tensor.data_ptr(), 3),
    ]
    with pytest.raises(UsageError, match="tile takes 2 arguments, 1 were given"):
        kernel[2, 128](tensor)
    together = Kernel(Path("tile.cu"), "tile", {}, (), cooperative=True)
    together.__dict__["_loaded"] = (Loaded, [8, 4])
    together[2, 128](tensor, 3)
    assert launched[-1] == ((1, 73), (2, 128, 0, False, True), Loaded, tensor.data_ptr(), 3)


def test_without_a_gpu_it_is_the_kernel_that_cannot_be_loaded(monkeypatch: Patch) -> None:
    def host() -> None:
        raise AttributeError("torch for CPUs has no streams to ask for")

    class Unloaded(Kernel):
        @property
        def _loaded(self) -> Any:
            raise RuntimeError("no GPU")

    monkeypatch.setattr(launch, "_host", host)
    with pytest.raises(RuntimeError, match="no GPU"):
        Unloaded(Path("tile.cu"), "tile", {}, ())[2, 128]()


@pytest.mark.parametrize(
    ("value", "size", "kind"),
    [
        (3, 4, "int32"),
        (True, 1, "bool"),
        (True, 4, "int32"),
        (0.5, 4, "float32"),
        (0.5, 8, "float64"),
    ],
)
def test_a_number_is_passed_as_wide_as_the_kernel_has_it(value: Any, size: int, kind: str) -> None:
    passed = launch._argument(value, size)
    assert (passed.dtype.name, passed) == (kind, value)


@pytest.mark.parametrize(("value", "size"), [(1 << 40, 8), (b"as it is", 128)])
def test_what_has_its_width_is_passed_as_it_is(value: Any, size: int) -> None:
    assert launch._argument(value, size) is value


class Views:
    """In place of views of tensors: each description gives another object."""

    def __init__(self) -> None:
        self.of: list[dict[str, Any]] = []

    def from_cuda_array_interface(self, lies: Any, stream_ptr: int) -> Views:
        self.of.append(lies.__cuda_array_interface__)
        return self

    def as_tensor_map(self, **_: Any) -> object:
        return object()


def test_a_tensor_map_is_made_once_of_an_address(monkeypatch: Patch) -> None:
    utils = pytest.importorskip("cuda.core.utils", reason="cuda-core is not installed")
    views = Views()
    monkeypatch.setattr(utils, "StridedMemoryView", views)
    tensor = torch.zeros(4, 8, 128, dtype=torch.bfloat16)
    first = cuda.tensor_map(tensor[..., :64], (1, 8, 64))
    assert cuda.tensor_map(tensor[..., :64], (1, 8, 64)) is first
    assert views.of == [
        {
            "shape": (4, 8, 64),
            "strides": (2048, 256, 2),
            "typestr": "<i2",
            "data": (tensor.data_ptr(), False),
            "version": 3,
        }
    ]
    others = [
        cuda.tensor_map(tensor[..., 64:], (1, 8, 64)),  # another address
        cuda.tensor_map(tensor[:2, :, :64], (1, 8, 64)),  # shape
        cuda.tensor_map(tensor[::2, :, :64], (1, 8, 64)),  # stride
        cuda.tensor_map(tensor[..., :64].view(torch.float16), (1, 8, 64)),  # type
        cuda.tensor_map(tensor[..., :64], (1, 4, 64)),  # box
        cuda.tensor_map(tensor[..., :64], (1, 8, 64), swizzled=False),
    ]
    assert len({*map(id, others), id(first)}) == 7
    gone = weakref.ref(tensor)
    del tensor
    assert gone() is None  # a map keeps no memory
    launch._described.cache_clear()


@pytest.mark.parametrize("percent", [-1, 101])
def test_a_carveout_that_is_no_percentage_is_refused(percent: int, tmp_path: Path) -> None:
    (tmp_path / "tile.cu").write_text('extern "C" __global__ void tile() {}\n')
    module = tmp_path / "variant.py"
    module.write_text(
        f'from workbench import cuda\ncuda.kernel("tile.cu", "tile", carveout={percent})\n'
    )
    with pytest.raises(UsageError, match=f"carveout of tile is {percent}"):
        load_module(module, "workbench_variant_of_a_test")
    cuda.take_declared()


@pytest.mark.parametrize(
    ("grid", "block", "limits", "why"),
    [
        ((1, 70000), 256, (1024, (0, 0, 0)), "grid.y of k is 70000, more than 65535"),
        (0, 256, (1024, (0, 0, 0)), "grid.x of k is 0, less than 1"),
        (1, (8, 1, 65), (1024, (0, 0, 0)), "block.z of k is 65, more than 64"),
        (1, 512, (256, (0, 0, 0)), "a block of 512 threads is more than the 256 that k allows"),
        (4097, 128, (1024, (2, 1, 1)), "grid.x of k is 4097, which is no multiple of its cluster"),
        (4096, (32, 32), (1024, (2, 1, 1)), ""),
    ],
)
def test_what_the_driver_refuses_is_named(
    grid: Any, block: Any, limits: tuple[int, tuple[int, ...]], why: str, monkeypatch: Patch
) -> None:
    """The launch fails as the driver does: without a cause."""

    def refuse(*arguments: Any) -> None:
        raise RuntimeError("CUDA_ERROR_INVALID_VALUE")

    device = SimpleNamespace(device_id=0)
    host = SimpleNamespace(device=lambda: device, stream=lambda number: 0, launch=refuse)
    monkeypatch.setattr(launch, "_host", lambda: host)
    monkeypatch.setattr(launch, "_stream", lambda *arguments: None)
    monkeypatch.setattr(launch, "_config", lambda *arguments: None)
    monkeypatch.setattr(launch, "_limits", lambda kernel, number: limits)
    kernel = Kernel(Path("k.cu"), "k", {}, ())
    monkeypatch.setitem(vars(kernel), "_loaded", (SimpleNamespace(handle=1), [4]))
    with pytest.raises(UsageError if why else RuntimeError) as told:
        kernel[grid, block](1)
    assert why in str(told.value)
    with pytest.raises(UsageError, match="argument 1 of k is 3000000000"):
        kernel[grid, block](3_000_000_000)
