"""The GPU that a worker has, and the libraries it is driven with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch

from workbench.cuda.build import arch_of
from workbench.evidence.records import Environment
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
    """What the GPU is compiled for: ``sm_90a``."""
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
        gpu_uuid=_uuid(),
        host=hashlib.sha256(platform.node().encode()).hexdigest()[:12],
        compute_capability=f"{properties.major}.{properties.minor}",
        sm_count=int(properties.multi_processor_count),
        l2_bytes=int(properties.L2_cache_size),
        memory_bytes=int(properties.total_memory),
        driver=_driver(),
        cuda=str(torch.version.cuda),
        nvrtc=f"{major}.{minor}",
        cudnn=str(torch.backends.cudnn.version()),
        torch=str(torch.__version__),
        cuda_core=version("cuda-core"),
        python=platform.python_version(),
    )


def _uuid() -> str | None:
    """NVML's name of this process's GPU, ``GPU-...``; None where torch does not say."""
    found = str(getattr(torch.cuda.get_device_properties(0), "uuid", ""))
    return f"GPU-{found.removeprefix('GPU-')}" if found else None


def _driver() -> str:
    try:
        import pynvml

        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:
        return ABSENT


def _handle(nvml: Any) -> Any:
    """NVML's of this process's GPU. It counts all of the machine, and torch those that are visible
    to it: the first there may be any here.
    """
    uuid = _uuid() if nvml.nvmlDeviceGetCount() > 1 else None
    return nvml.nvmlDeviceGetHandleByUUID(uuid) if uuid else nvml.nvmlDeviceGetHandleByIndex(0)


REASON = "nvmlClocksEventReason"


@dataclass(frozen=True)
class Load:
    """Clock in MHz, temperature in °C; None is not collected. ``reasons`` are NVML's names."""

    sm_clock_mhz: int | None = None
    temperature_c: int | None = None
    throttled: bool | None = None
    reasons: tuple[str, ...] = ()


class Gauge:
    """Clocks, temperature and throttling from NVML; None where it does not answer."""

    def __init__(self) -> None:
        self._nvml: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = _handle(pynvml)
            self._nvml = pynvml
            self.reasons = {
                name.removeprefix(REASON): int(bit)
                for name, bit in vars(pynvml).items()
                if name.startswith(REASON) and isinstance(bit, int) and bit.bit_count() == 1
            }
            self.load()
        except Exception:
            self._nvml = None

    def load(self) -> Load:
        if self._nvml is None:
            return Load()
        nvml, handle = self._nvml, self._handle
        reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        benign = (
            nvml.nvmlClocksEventReasonGpuIdle | nvml.nvmlClocksEventReasonApplicationsClocksSetting
        )
        return Load(
            sm_clock_mhz=int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            temperature_c=int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            throttled=bool(reasons & ~benign),
            reasons=tuple(name for name, bit in self.reasons.items() if reasons & ~benign & bit),
        )

    def memory_clock_mhz(self) -> float | None:
        if self._nvml is None:
            return None
        nvml = self._nvml
        try:
            return float(nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_MEM))
        except Exception:
            return None
