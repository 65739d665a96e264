"""``[places.NAME]`` of ``workbench.toml``: the machines on which ``--on NAME`` measures.

    [places.lab]
    kind = "ssh"
    hosts = ["gpu1", "gpu2"]

The place ``local``, this machine with a worker for each of its GPUs, is there without a table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from workbench.errors import UsageError, nearest, unknown
from workbench.study.text import Rules, fill, is_plain_name, require_table

LOCAL = "local"


@dataclass(frozen=True)
class LocalPlace:
    """``workers`` processes; 0: one for each GPU."""

    name: str = LOCAL
    workers: int = 0


@dataclass(frozen=True)
class SshPlace:
    """Hosts that ``ssh`` reaches without a question.

    ``user``, ``port``, ``identity`` and ``config`` are what ``ssh -l -p -i -F`` takes; without them
    the user's own ``~/.ssh/config`` decides. ``folder`` is the only one that is written to, below
    the home folder there where it is relative. ``python`` makes the environment in it, from the
    newest Python there where it is not said, and ``inherit`` lets that environment see the packages
    that this Python has (its torch, say). ``packages`` are what the variants need beside torch, as
    pip takes it. ``workers`` of a host; 0: one for each GPU.
    """

    name: str
    hosts: tuple[str, ...] = ()
    user: str = ""
    port: int = 0
    identity: str = ""
    config: str = ""
    folder: str = ".workbench"
    python: str = ""
    inherit: bool = False
    packages: tuple[str, ...] = ()
    workers: int = 0


@dataclass(frozen=True)
class SchedulerPlace:
    """A Dask scheduler that runs already; the files of TLS are its authority's certificate (``ca``)
    and the user's own certificate and key.
    """

    name: str
    address: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""


Place = LocalPlace | SshPlace | SchedulerPlace
KINDS: Mapping[str, type[Place]] = {
    "local": LocalPlace,
    "ssh": SshPlace,
    "scheduler": SchedulerPlace,
}
NEEDED = ("hosts", "address")
FILES = ("identity", "config", "ca", "cert", "key")  # of this machine
MOST = {"workers": 1024, "port": 65535}
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
HOST = re.compile(r"[\w:][\w.:@%-]*")  # no option of ssh's, no word of a shell
ADDRESS = re.compile(r"(?P<protocol>tls|tcp)://(?P<host>\[[\da-fA-F:]+\]|[\w.-]+):\d{1,5}")


def kind_of(place: Place) -> str:
    return next(name for name, kind in KINDS.items() if isinstance(place, kind))


def read_places(path: Path, tables: dict[str, Any]) -> Mapping[str, Place]:
    """By name, as the file has them. Raises UsageError naming file and key for what is none."""
    return {name: _read(path, name, tables[name]) for name in tables}


def find_place(places: Mapping[str, Place], name: str) -> Place:
    """Raises UsageError with the nearest name."""
    known = {LOCAL: LocalPlace(), **places}
    if name not in known:
        raise unknown("place", name, known)
    return known[name]


def _read(path: Path, name: str, value: object) -> Place:
    where = f"places.{name}"
    if not (is_plain_name(name) and name.isprintable()):
        raise UsageError(f"{path}: '{where}' is no name of a place", hint="letters and digits do")
    table = dict(require_table(path, where, value))
    named = table.pop("kind", None)
    if named is None:
        raise UsageError(f"{path}: '{where}' has no 'kind'", hint=f"one of {', '.join(KINDS)}")
    if not (isinstance(named, str) and named in KINDS):
        raise UsageError(f"{path}: '{where}.kind' is {named!r}", hint=nearest(str(named), KINDS))
    if "name" in table:
        raise UsageError(f"{path}: unknown key '{where}.name'", hint=f"[{where}] says the name")
    rules = Rules(most={f"{where}.{key}": most for key, most in MOST.items()})
    place = fill(KINDS[named], path, where, {"name": name, **table}, rules)
    for key in (f.name for f in fields(place)):
        if key in NEEDED and not getattr(place, key):
            raise UsageError(
                f"{path}: '{where}' has no '{key}'", hint=f"{named} needs it: see docs/places.md"
            )
    return _checked(path, where, _with_paths(path.parent, place))


def _with_paths(base: Path, place: Place) -> Place:
    """Files of this machine as whole paths; relative ones are the workspace's."""
    named = {f.name: getattr(place, f.name) for f in fields(place) if f.name in FILES}
    paths: dict[str, Any] = {
        key: str(base.absolute() / Path(value).expanduser())
        for key, value in named.items()
        if value
    }
    return replace(place, **paths)


def _checked(path: Path, where: str, place: Place) -> Place:
    """Raises UsageError for what would be read as something else where it is used."""
    match place:
        case SshPlace():
            for host in place.hosts:
                if not HOST.fullmatch(host):
                    raise UsageError(
                        f"{path}: '{where}.hosts' has {host!r}, which is no host",
                        hint="a name or an address, as ssh takes it",
                    )
            if len(set(place.hosts)) < len(place.hosts):
                raise UsageError(f"{path}: '{where}.hosts' has a host twice", hint="name it once")
            if place.user and not HOST.fullmatch(place.user):
                raise UsageError(
                    f"{path}: '{where}.user' is {place.user!r}", hint="the name of an account there"
                )
        case SchedulerPlace():
            _check_address(path, where, place)
    return place


def _check_address(path: Path, where: str, place: SchedulerPlace) -> None:
    """What is sent to a scheduler is code: whoever listens, or stands between, could run his."""
    found = ADDRESS.fullmatch(place.address)
    if found is None:
        raise UsageError(
            f"{path}: '{where}.address' is {place.address!r}",
            hint="such as tls://10.0.0.5:8786",
        )
    if found["protocol"] == "tcp" and found["host"] not in LOOPBACK:
        raise UsageError(
            f"{path}: '{where}.address' is a scheduler on the network without TLS",
            hint="start it with --protocol tls, and give tls://, ca, cert and key: docs/places.md",
        )
    if found["protocol"] == "tls":
        for key in ("ca", "cert", "key"):
            if not getattr(place, key):
                raise UsageError(
                    f"{path}: '{where}' has no '{key}'", hint="a tls:// address needs all three"
                )
