"""``pynvml`` for tests: lists the GPUs of a JSON file, which ``WORKBENCH_FAKE_NVML`` names.

Without the file NVML does not start. A GPU whose UUID stands in the file ``lost`` beside it has no
handle. A field that is null is refused.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FILE = "WORKBENCH_FAKE_NVML"
NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = "sm_clock_mhz", "memory_clock_mhz", 0
nvmlClocksEventReasonGpuIdle = 1
nvmlClocksEventReasonApplicationsClocksSetting = 2
nvmlClocksEventReasonSwPowerCap = 4


class NVMLError(Exception):
    pass


def _gpus() -> list[dict[str, Any]]:
    path = Path(os.environ.get(FILE, "/none"))
    if not path.exists():
        raise NVMLError("Driver Not Loaded")
    lost = path.with_name("lost")
    names = lost.read_text().split() if lost.exists() else []
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return [{**gpu, "lost": gpu["uuid"] in names} for gpu in found]


def _known(value: Any) -> Any:
    if value is None:
        raise NVMLError("Not Supported")
    return value


def nvmlInit() -> None:
    _gpus()


def nvmlShutdown() -> None:
    pass


def nvmlSystemGetDriverVersion() -> str:
    return next((gpu["driver"] for gpu in _gpus()), "580")


def nvmlDeviceGetCount() -> int:
    return len(_gpus())


def nvmlDeviceGetHandleByIndex(index: int) -> dict[str, Any]:
    gpu = _gpus()[index]
    if gpu["lost"]:
        raise NVMLError("GPU is lost")
    return gpu


def nvmlDeviceGetHandleByUUID(uuid: str) -> dict[str, Any]:
    return next(gpu for gpu in _gpus() if gpu["uuid"] == uuid)


def nvmlDeviceGetName(gpu: dict[str, Any]) -> str:
    return str(_known(gpu["name"]))


def nvmlDeviceGetUUID(gpu: dict[str, Any]) -> str:
    return str(_known(gpu["uuid"]))


def nvmlDeviceGetCudaComputeCapability(gpu: dict[str, Any]) -> list[int]:
    return [int(part) for part in _known(gpu["compute_capability"]).split(".")]


def nvmlDeviceGetMemoryInfo(gpu: dict[str, Any]) -> Any:
    return SimpleNamespace(total=_known(gpu["memory_mib"]) << 20)


def nvmlDeviceGetMaxClockInfo(gpu: dict[str, Any], clock: str) -> int:
    return int(_known(gpu[clock]))


def nvmlDeviceGetPowerManagementLimit(gpu: dict[str, Any]) -> int:
    return int(_known(gpu["power_w"]) * 1000)


def nvmlDeviceGetMigMode(gpu: dict[str, Any]) -> list[int]:
    return [int(bool(_known(gpu.get("slices", []))))] * 2


def nvmlDeviceGetMaxMigDeviceCount(gpu: dict[str, Any]) -> int:
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(gpu: dict[str, Any], index: int) -> Any:
    return dict(enumerate(gpu["slices"])).get(index) or _known(None)


def nvmlDeviceGetCurrentClocksEventReasons(gpu: dict[str, Any]) -> int:
    return int(gpu.get("reasons", 0))


def nvmlDeviceGetClockInfo(gpu: dict[str, Any], clock: str) -> int:
    return int(_known(gpu[clock]))


def nvmlDeviceGetTemperature(gpu: dict[str, Any], where: int) -> int:
    return 30
