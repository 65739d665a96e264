"""The GPU that a worker has, its libraries, and GPU code called on the CPU where that works."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

from workbench.cuda.compiler import arch_of
from workbench.evidence.records import Environment
from workbench.run.machine import look
from workbench.words import ABSENT


def context_lost() -> bool:
    """Whether the CUDA context of this process can no longer be used."""
    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def device_arch() -> str:
    """Return what the GPU is compiled for: ``sm_90a``."""
    return arch_of(*torch.cuda.get_device_capability())


def environment() -> Environment:
    """Raises RuntimeError without a GPU."""
    import platform
    from importlib.metadata import version

    from cuda.bindings import nvrtc

    properties = torch.cuda.get_device_properties(0)
    _, major, minor = nvrtc.nvrtcVersion()
    return Environment(
        gpu=str(properties.name),
        gpu_uuid=gpu_uuid(),
        host=hashlib.sha256(platform.node().encode()).hexdigest()[:12],
        compute_capability=f"{properties.major}.{properties.minor}",
        sm_count=int(properties.multi_processor_count),
        l2_bytes=int(properties.L2_cache_size),
        memory_bytes=int(properties.total_memory),
        driver=look().driver or ABSENT,
        cuda=str(torch.version.cuda),
        nvrtc=f"{major}.{minor}",
        cudnn=str(torch.backends.cudnn.version()),
        torch=str(torch.__version__),
        cuda_core=version("cuda-core"),
        python=platform.python_version(),
    )


def gpu_uuid() -> str | None:
    """NVML's name of this process's GPU, ``GPU-...``; None where torch does not say."""
    uuid = str(getattr(torch.cuda.get_device_properties(0), "uuid", ""))
    return f"GPU-{uuid.removeprefix('GPU-')}" if uuid else None


class OnCpu(TorchFunctionMode):
    """Puts on the CPU what is asked to be on a GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if str(options.get("device", "")).startswith("cuda"):
            options["device"] = "cpu"
        elif func in _device_constructors() and options.get("device") is None:
            options["device"] = "cpu"  # whatever the default is that a module has set
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.to:
            args = tuple("cpu" if _is_gpu(value) else value for value in args)
        return func(*args, **options)


def _is_gpu(value: Any) -> bool:
    return isinstance(value, str | torch.device) and str(value).startswith("cuda")


@contextmanager
def on_cpu() -> Iterator[None]:
    generator, wait = torch.Generator, torch.cuda.synchronize

    class Generator:
        def __new__(cls, device: Any = "cpu") -> Any:
            return generator("cpu")

    torch.Generator = Generator  # type: ignore[misc]
    torch.cuda.synchronize = lambda device=None: None
    try:
        with OnCpu():
            yield
    finally:
        torch.Generator = generator  # type: ignore[misc]
        torch.cuda.synchronize = wait
