"""This machine: its GPUs, as NVML describes them, ncu and packages. And who measures on which GPU:
one process of a user at a time.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from workbench import bounds
from workbench.errors import EnvironmentLacks
from workbench.words import INSTALL

VISIBLE = "CUDA_VISIBLE_DEVICES"
LIBRARY = "libnvidia-ml.so.1"
NVML_PACKAGE = "nvidia-ml-py"
REASON = "nvmlClocksEventReason"
NCU_LOCATIONS = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute")
OWN_FOLDER = "WORKBENCH_FOLDER"  # names the only folder that a remote worker writes to
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a slice of one: ``profile`` is then MIG's, such as ``MIG 1g.18gb``.

    Clocks and power are the highest that are allowed. None is what NVML does not report.
    """

    name: str
    driver: str
    compute_capability: str  # "" if NVML does not report one
    uuid: str = ""
    profile: str = ""
    memory_mib: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_w: float | None = None

    @property
    def full_name(self) -> str:
        """The name has the profile of a slice behind it, as in CUDA."""
        return f"{self.name} {self.profile}".strip()

    @property
    def slug(self) -> str:
        from workbench.evidence.store import gpu_slug  # with msgspec, which doctor may find missing

        return gpu_slug(self.full_name)

    @property
    def arch(self) -> str:
        """The architecture to compile for: ``sm_90a``."""
        match = re.fullmatch(r"(\d+)\.(\d+)", self.compute_capability)
        if match is None:
            raise EnvironmentLacks(
                f"NVML does not report the compute capability of {self.name}",
                hint="update NVIDIA's driver",
            )
        from workbench.cuda.compiler import arch_of  # with the whole package

        return arch_of(int(match[1]), int(match[2]))


@cache
def find_gpu() -> Gpu | None:
    """Return the first GPU that this process may use (see ``CUDA_VISIBLE_DEVICES``), or None."""
    return next(iter(gpus()), None)


def require_gpu(name: str | None, uuid: str | None) -> None:
    """Raises EnvironmentLacks where a worker runs on another GPU than the one whose evidence is
    written. Slices are distinguished by name: CUDA may report the UUID of the whole GPU.
    """
    here = find_gpu()
    if here is None or not here.uuid or not uuid:
        return
    same = uuid.lower() == here.uuid.lower()
    if here.profile:
        from workbench.evidence.store import gpu_slug  # reads records: not without msgspec

        same = here.slug == gpu_slug(name or "")
    if not same:
        raise EnvironmentLacks(
            f"the worker runs on {name} ({uuid}), and the evidence is that of {here.full_name} "
            f"({here.uuid})",
            hint=f"CUDA_VISIBLE_DEVICES={here.uuid} names the GPU",
        )


def gpus() -> list[Gpu]:
    """Return the GPUs that this process may use. If ``CUDA_VISIBLE_DEVICES`` is set, it decides
    among those that NVML lists.
    """
    return usable(look().gpus, os.environ.get(VISIBLE))


def usable(listed_gpus: Sequence[Gpu], named: str | None) -> list[Gpu]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` names, by number or by the beginning of a UUID.
    Like in CUDA, the first name that fits none ends the list. If it is not set, slices replace
    GPUs.

    Numbers count as NVML does, by PCI address. CUDA does so too with
    ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` and where all GPUs are equal; else it puts the fastest first.
    """
    whole = [gpu for gpu in listed_gpus if not gpu.profile]
    if named is None:
        return [gpu for gpu in listed_gpus if gpu.profile] or whole
    listed: list[Gpu] = []
    for word in (part.strip() for part in named.split(",")):
        if word.isdigit():
            meant = whole[int(word) : int(word) + 1]
        else:
            meant = [gpu for gpu in listed_gpus if word and gpu.uuid.startswith(word)][:1]
        if not meant:
            break
        listed += meant
    return listed


@dataclass(frozen=True)
class ListedGpus:
    """NVML lists whole GPUs, each followed by its slices. ``driver`` is "" if NVML does
    not report it; ``error`` says why there is no GPU. ``lost``: what NVML says of GPUs that it
    counts and cannot open.
    """

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    error: str = ""
    lost: tuple[str, ...] = ()


def look() -> ListedGpus:
    """Ask NVML for all GPUs of this machine, whether or not this process may use them."""
    try:
        if "pynvml" not in sys.modules:
            ctypes.CDLL(LIBRARY)  # importing pynvml takes ten times as long as failing here
        import pynvml

        pynvml.nvmlInit()
        try:
            return _listed(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except OSError:
        return ListedGpus(error=f"NVML is not installed: {LIBRARY} was not found")
    except ImportError:
        return ListedGpus(error=f"the package {NVML_PACKAGE} is not installed")
    except Exception as failed:  # NVMLError, and what a broken installation raises in its place
        return ListedGpus(error=f"NVML: {failed}")


def _listed(nvml: Any) -> ListedGpus:
    """One reading of NVML. A question that it refuses is answered by None."""
    error, gpus, lost = "", list[Gpu](), list[str]()

    def ask(name: str, *arguments: Any) -> Any:
        nonlocal error
        try:
            return getattr(nvml, name)(*arguments)
        except nvml.NVMLError as refused:
            error = f"NVML: {refused}"
            return None

    def memory_mib(handle: Any) -> int | None:
        memory = ask("nvmlDeviceGetMemoryInfo", handle)
        return None if memory is None else int(memory.total) // 2**20

    driver = str(ask("nvmlSystemGetDriverVersion") or "")
    for index in range(ask("nvmlDeviceGetCount") or 0):
        handle = ask("nvmlDeviceGetHandleByIndex", index)
        if handle is None:  # one that was lost, or that this container may not use
            lost.append(f"GPU {index}: {error}")
            continue
        power = ask("nvmlDeviceGetPowerManagementLimit", handle)
        capability = ask("nvmlDeviceGetCudaComputeCapability", handle)
        whole = Gpu(
            name=str(ask("nvmlDeviceGetName", handle) or "unknown"),
            driver=driver or "unknown",
            compute_capability=".".join(map(str, capability or ())),
            uuid=str(ask("nvmlDeviceGetUUID", handle) or ""),
            memory_mib=memory_mib(handle),
            sm_clock_mhz=ask("nvmlDeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=ask("nvmlDeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_MEM),
            power_w=None if power is None else power / 1000,
        )
        gpus.append(whole)
        mode = ask("nvmlDeviceGetMigMode", handle)
        most = ask("nvmlDeviceGetMaxMigDeviceCount", handle) if mode and mode[0] else 0
        for place in range(most or 0):
            part = ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
            if part is not None:
                profile = re.search(r"MIG \S+", str(ask("nvmlDeviceGetName", part) or ""))
                uuid = str(ask("nvmlDeviceGetUUID", part) or "")
                kind, size = profile[0] if profile else "MIG", memory_mib(part)
                gpus.append(replace(whole, uuid=uuid, profile=kind, memory_mib=size))
    error = "" if gpus else error or "NVML lists no GPU"
    return ListedGpus(tuple(gpus), driver, error, tuple(lost))


def why_none() -> str:
    """Why this process has no GPU. If NVML fails, this quotes what nvidia-smi says."""
    listed = look()
    if listed.error:
        return f"{listed.error}; {nvidia_smi()}"
    if (named := os.environ.get(VISIBLE)) is not None:
        return f"{VISIBLE} names none: {named!r}"
    return "NVML lists one now: try again"


@cache
def nvidia_smi() -> str:
    """The first line that ``nvidia-smi -L`` prints. It is asked once: it may hang as its driver."""
    from workbench.cuda.compiler import ran  # with the whole package

    if shutil.which("nvidia-smi") is None:
        return "nvidia-smi is not on PATH"
    code, text = ran(["nvidia-smi", "-L"], "/", bounds.TOOL_SECONDS)
    if code is None:
        return f"nvidia-smi does not run: {text}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"nvidia-smi: {lines[0] if lines else f'exit code {code}'}"


@cache
def find_ncu() -> str | None:
    """Path of ncu: on PATH, in the CUDA toolkit, or in the newest Nsight Compute installed."""
    on_path = shutil.which("ncu")
    if on_path:
        return on_path
    for location in map(Path, NCU_LOCATIONS):
        if location.is_file():
            return str(location)
        versions = sorted(location.glob("*/ncu"))
        if versions:
            return str(versions[-1])
    return None


@cache
def ncu_version(ncu: str) -> str | None:
    from workbench.cuda.compiler import ran  # with the whole package

    text = ran([ncu, "--version"], ".", bounds.TOOL_SECONDS)[1]
    match = re.search(r"Version (\d+(?:\.\d+)+)", text)
    return ".".join(match[1].split(".")[:3]) if match else None


def missing_packages() -> list[str]:
    """Packages of the ``gpu`` extra that cannot be found."""
    names = {"torch": "torch", "cuda.core": "cuda-core", "pynvml": NVML_PACKAGE}
    missing = []
    for module, package in names.items():
        try:
            spec = find_spec(module)
        except ModuleNotFoundError:
            spec = None
        if spec is None:
            missing.append(package)
    return missing


def missing_to_run() -> list[str]:
    """List the missing packages that building and running need. NVML's only describes the GPU."""
    return [name for name in missing_packages() if name != NVML_PACKAGE]


def can_measure() -> bool:
    """Whether verbs measure here instead of reading recorded evidence."""
    return find_gpu() is not None and find_ncu() is not None and not missing_packages()


def why_not_measuring() -> EnvironmentLacks:
    """Return why nothing can be measured here, as an error to raise."""
    missing, ncu = missing_packages(), find_ncu()
    lacks = EnvironmentLacks(f"Python packages are missing: {', '.join(missing)}", hint=INSTALL)
    if find_gpu() is not None:
        return no_ncu() if ncu is None else lacks
    if NVML_PACKAGE in missing and shutil.which("nvidia-smi") is not None:
        return lacks  # there may well be a GPU
    return EnvironmentLacks(
        f"no NVIDIA GPU was found ({why_none()})",
        hint="verbs show the recorded evidence here, and --on HOST measures on another; "
        "`workbench doctor` says what is missing",
    )


def no_ncu() -> EnvironmentLacks:
    return EnvironmentLacks(
        "ncu was not found on PATH or under /usr/local/cuda",
        hint="install Nsight Compute, or put its folder on PATH",
    )


@dataclass(frozen=True)
class Load:
    """Temperature in °C; None is not collected. ``reasons`` are NVML's names."""

    temperature_c: int | None = None
    throttled: bool | None = None
    reasons: tuple[str, ...] = ()


class Gauge:
    """Clocks, temperature and throttling of a running GPU; None if NVML does not answer.

    NVML counts all GPUs of the machine, CUDA those that are visible to it: if there are several,
    ``uuid`` says which.
    """

    def __init__(self, uuid: str | None) -> None:
        self._nvml: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
            handle = (
                pynvml.nvmlDeviceGetHandleByUUID(uuid)
                if uuid and pynvml.nvmlDeviceGetCount() > 1
                else pynvml.nvmlDeviceGetHandleByIndex(0)
            )
            self._nvml, self._handle = pynvml, handle
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
            temperature_c=int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            throttled=bool(reasons & ~benign),
            reasons=tuple(name for name, bit in self.reasons.items() if reasons & ~benign & bit),
        )


def own_folder() -> Path:
    """The only folder that a worker writes to, readable to its user alone."""
    default = Path(tempfile.gettempdir()) / f"workbench-{os.getuid()}"
    folder = Path(os.environ.get(OWN_FOLDER) or default)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise EnvironmentLacks(
            f"{folder} belongs to somebody else", hint=f"set {OWN_FOLDER} to a folder of your own"
        )
    return folder


@contextmanager
def locked(wanted: Sequence[Gpu], note: Callable[[str], None] = lambda text: None) -> Iterator[Gpu]:
    """Give the first of the GPUs that no other process of this user holds, as soon as there is one.
    ``note`` reports that it waits.
    """
    from workbench.study.files import Rank, held

    locks = own_folder() / "cards"
    locks.mkdir(exist_ok=True)
    for attempt in itertools.count():
        for gpu in wanted:
            handle = os.open(locks / f"{_named(gpu)}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            with ExitStack() as stack:
                stack.callback(os.close, handle)
                try:
                    stack.enter_context(held(handle, Rank.GPU, locks, wait=False))
                except BlockingIOError:
                    continue
                yield gpu
                return
        if attempt == 0:
            note(f"waiting: another command measures on this {wanted[0].name}")
        time.sleep(POLL_SECONDS)


@contextmanager
def one_gpu(name: str, note: Callable[[str], None]) -> Iterator[tuple[Gpu, Path]]:
    """Give a GPU of this name, and an empty folder for scratch files. Inside, this process and its
    children see no other GPU. Raises EnvironmentLacks where no GPU has the name.

    ncu serialises on a file in ``TMPDIR``, and fails where another user owns it: so there is a
    folder for each GPU and user.
    """
    every = gpus()
    wanted = [gpu for gpu in every if gpu.name == name]
    if not wanted:
        names = ", ".join(dict.fromkeys(gpu.name for gpu in every)) or "none"
        raise EnvironmentLacks(
            f"{platform.node()} has no {name} (its GPUs: {names})",
            hint="measure on machines with one model of GPU at a time",
        )
    with locked(wanted, note) as gpu:
        user_folder = own_folder()
        folder = user_folder / "cards" / _named(gpu)
        shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
        folder.mkdir(parents=True)
        os.environ.update({VISIBLE: gpu.uuid, "TMPDIR": str(folder), OWN_FOLDER: str(user_folder)})
        tempfile.tempdir = None  # or TMPDIR is not read again
        yield gpu, folder


def _named(gpu: Gpu) -> str:
    return re.sub(r"[^\w-]", "_", gpu.uuid)
