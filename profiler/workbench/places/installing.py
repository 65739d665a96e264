"""Brings a bare host to readiness over SSH, and takes all of it away again."""

from __future__ import annotations

import hashlib
import json
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from workbench.errors import EnvironmentLacks, ToolFailed, UsageError, WorkbenchError
from workbench.places.connection import Connection, answer, raw
from workbench.places.opened import Tell
from workbench.places.there import environment
from workbench.places.wheel import build_wheel
from workbench.study.places import SshPlace
from workbench.words import INSTALL

EXTRAS = "gpu"
# What the two ends of a Dask connection must have in the same version.
PINNED = ("distributed", "dask", "cloudpickle", "msgpack", "tornado")
SEEN = """
import json
from workbench.run import gpu, machine
found, driver = machine.find_gpu(), gpu.look().driver
print(json.dumps({"driver": driver, "gpu": found and found.name, "ncu": machine.find_ncu()}))
"""
SHOWN = ("Collecting ", "Downloading ", "Installing ")  # of what pip says


@dataclass(frozen=True)
class Carried:
    """What goes to every host of a place: the wheel, further wheels where the host asks no index,
    and the workspace's sources by their sha256.
    """

    wheel: Path
    sources: Mapping[str, Path]
    wheels: Sequence[Path] = ()
    offline: bool = False


@dataclass(frozen=True)
class Host:
    """What is known of a host before anything is done there."""

    name: str
    folder: Path
    version: str
    machine: str
    marker: Mapping[str, Any] | None

    @property
    def python(self) -> str:
        """That of its virtual environment."""
        return str(self.folder / "venv" / "bin" / "python")

    def command(self, *arguments: str) -> list[str]:
        """Its Python with these arguments, which leaves nothing outside of the folder."""
        given = [f"{name}={value}" for name, value in environment(self.folder).items()]
        return ["env", *given, self.python, *arguments]


def requirements(place: SshPlace) -> list[str]:
    """Beside the workbench's own. Raises EnvironmentLacks where Dask is missing here."""
    try:
        return [*(f"{name}=={metadata.version(name)}" for name in PINNED), *place.packages]
    except metadata.PackageNotFoundError as error:
        raise no_dask(error.name) from None


def no_dask(package: str) -> EnvironmentLacks:
    return EnvironmentLacks(
        f"the Python package '{package}' is missing: it carries work to other places",
        hint=INSTALL.replace("gpu", "cluster"),
    )


def look(connection: Connection) -> Host:
    """Raises EnvironmentLacks for what stands in the way: see ``refusal``."""
    place = connection.place
    found = answered(connection, {"do": "look", "folder": place.folder})
    return Host(
        name=connection.host,
        folder=Path(found["folder"]),
        version=found["version"],
        machine=found["machine"],
        marker=found["marker"],
    )


def answered(
    connection: Connection,
    request: Mapping[str, Any],
    files: Sequence[Path] = (),
    tell: Tell | None = None,
) -> dict[str, Any]:
    """As ``Connection.ask``; raises what is refused there as an error of this side."""
    answer = connection.ask(request, files, tell)
    if "refused" in answer:
        raise refusal(connection, answer["refused"], answer["message"])
    return answer


def refusal(connection: Connection, kind: str, message: str) -> WorkbenchError:
    host, table = connection.host, f"[places.{connection.place.name}]"
    hints = {
        "full": f"make room there, or say another folder in {table}",
        "denied": f"say a folder that you may write to in {table}",
        "foreign": f"say another folder in {table}, or remove that one yourself",
        "busy": "wait for it, or end it",
        "no venv": f"install python3-venv there, or say another python in {table} (uv needs no "
        "root)",
        "unreachable": "carry the wheels there: `workbench setup --wheels DIR`; docs/places.md "
        "says how to fetch them",
    }
    what = {"unreachable": "pip reaches no index, or lacks a wheel: "}.get(kind, "")
    error = ToolFailed if kind in ("failed", "damaged") else EnvironmentLacks
    return error(f"{host}: {what}{message}", hint=hints.get(kind, ""))


def carried(folder: Path, sources: Mapping[str, Path], wheels: Path | None) -> Carried:
    """What is to be carried; the wheel is built into ``folder``. Raises UsageError for a folder
    without wheels.
    """
    found = sorted(wheels.glob("*.whl")) if wheels is not None else []
    if wheels is not None and not found:
        raise UsageError(
            f"there is no wheel in {wheels}", hint="`pip download` puts them there: docs/places.md"
        )
    return Carried(build_wheel(folder), sources, found, offline=wheels is not None)


def set_up(connection: Connection, goods: Carried, tell: Tell) -> Host:
    """The environment, the workbench and the sources; what is there already stays.

    Raises EnvironmentLacks where the host lacks what it takes to measure, before anything large is
    fetched.
    """
    host, place = look(connection), connection.place
    wanted = wanted_marker(place, goods.wheel)
    if host.marker == {"complete": True, **wanted}:
        tell(f"{host.name}: {host.folder} is as it should be")
        require_card(connection, host)
    else:
        tell(f"{host.name}: Python {host.version}, into {host.folder}")
        request = {"folder": place.folder, "wheel": goods.wheel.name, "inherit": place.inherit}
        answered(connection, {"do": "prepare", **request}, [goods.wheel])
        require_card(connection, host)
        install = {
            **{"do": "install", "extras": EXTRAS, "offline": goods.offline, "marker": wanted},
            **{"requirements": wanted["requirements"], **request},
        }
        answered(connection, install, goods.wheels, lambda line: _tell_pip(host, line, tell))
    sent = send_sources(connection, host, goods.sources)
    tell(f"{host.name}: {sent} of {len(goods.sources)} sources were not there yet")
    return host


def wanted_marker(place: SshPlace, wheel: Path) -> dict[str, Any]:
    """What an environment was made of."""
    return {
        "wheel": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "requirements": requirements(place),
        "python": place.python,
        "inherit": place.inherit,
    }


def _tell_pip(host: Host, line: str, tell: Tell) -> None:
    if line.strip().startswith(SHOWN):
        tell(f"{host.name}: {line.strip()}")


def require_card(connection: Connection, host: Host) -> None:
    """Raises EnvironmentLacks for a host without a driver, GPU or ncu."""
    seen = _output(connection, host.command("-c", SEEN))
    why = {
        f"{host.name} has no NVIDIA driver": not seen["driver"],
        f"{host.name} has no GPU: NVML lists none": not seen["gpu"],
        f"{host.name} has no ncu on PATH or under /usr/local/cuda": not seen["ncu"],
    }
    hints = (
        "install NVIDIA's driver",
        "look at `nvidia-smi` there",
        "install Nsight Compute there",
    )
    for (message, lacks), hint in zip(why.items(), hints, strict=True):
        if lacks:
            raise EnvironmentLacks(message, hint=hint)


def send_sources(connection: Connection, host: Host, sources: Mapping[str, Path]) -> int:
    """Those that are not there yet, by content; how many."""
    started = connection.start(host.command("-m", "workbench.places.receive"))
    assert started.stdin is not None
    assert started.stdout is not None
    try:
        started.stdin.write(json.dumps(sorted(sources)) + "\n")
        started.stdin.flush()
        lacking = json.loads(answer(started.stdout) or "null")
        if lacking is not None:
            with tarfile.open(fileobj=raw(started.stdin), mode="w|") as sent:
                for sha256 in lacking:
                    sent.add(sources[sha256], arcname=sha256)
    except BrokenPipeError:
        lacking = None
    _, said = started.communicate()
    if lacking is None or started.returncode != 0:
        raise ToolFailed(f"{host.name}: the sources did not arrive", ran=said.strip()[-500:])
    return len(lacking)


def doctor(connection: Connection, host: Host) -> dict[str, Any]:
    """What ``workbench doctor --json`` says there."""
    return _output(connection, host.command("-m", "workbench", "doctor", "--json"))


def _output(connection: Connection, command: Sequence[str]) -> dict[str, Any]:
    """The JSON object that a command prints, behind what a login may print."""
    done = connection.run(command)
    lines = done.stdout.splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith("{")), None)
    if first is None:
        raise ToolFailed(
            f"{connection.host}: `{' '.join(command[-3:])}` ended with {done.returncode}",
            hint=f"`workbench setup --on {connection.place.name}` makes it anew",
            ran=done.stderr.strip()[-500:],
        )
    found: dict[str, Any] = json.loads("\n".join(lines[first:]))
    return found


def take_away(connection: Connection) -> bool:
    """All that ``set_up`` left; whether there was anything."""
    request = {"do": "remove", "folder": connection.place.folder}
    return bool(answered(connection, request)["removed"])


def scratch() -> tempfile.TemporaryDirectory[str]:
    """For the wheel."""
    return tempfile.TemporaryDirectory(prefix="workbench-wheel-")
