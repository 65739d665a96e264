"""``workbench setup``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.commands.doctor import Examined, show_examined
from workbench.commands.options import SetupOptions
from workbench.commands.printing import Output, say, show_json
from workbench.commands.progress import note
from workbench.errors import UsageError, WorkbenchError
from workbench.render.document.machine import Finding
from workbench.study.places import SshPlace, find_place, kind_of
from workbench.study.workspace import Workspace, find_workspace

ELSEWHERE = {
    "local": "this machine needs none: see `workbench doctor`",
    "scheduler": "whoever started it has set its workers up",
}


def run(options: SetupOptions) -> None:
    workspace = find_workspace(options.project)
    place = find_place(workspace.config.places, options.on)
    if not isinstance(place, SshPlace):
        raise UsageError(
            f"'{place.name}' is of kind {kind_of(place)}: there is nothing to set up over SSH",
            hint=ELSEWHERE[kind_of(place)],
        )
    if options.remove:
        remove(place, json=options.json)
    else:
        set_up(place, workspace, options)


def set_up(place: SshPlace, workspace: Workspace, options: SetupOptions) -> None:
    """Host after host: several may share a home. Those that cannot be set up are told of, and the
    first of them is the error at the end.
    """
    from workbench.places import installing
    from workbench.places.connection import Connection

    found: list[Examined] = []
    broke: list[WorkbenchError] = []
    with installing.scratch() as scratch:
        goods = installing.carried(Path(scratch), sources(workspace), options.wheels)
        for name in place.hosts:
            try:
                with Connection(place, name) as connection:
                    host = installing.set_up(connection, goods, note)
                    found.append(examined(name, installing.doctor(connection, host)))
            except WorkbenchError as error:
                broke.append(error)
                note(f"goes on without {name}: {error.message}")
    if not found:
        raise broke[0]
    out = Output(options.wide, options.markdown)
    try:
        show_examined(out, place.name, found, json=options.json)
    finally:
        if broke:
            raise broke[0]


def sources(workspace: Workspace) -> Mapping[str, Path]:
    """Those of all studies that can be read, by the sha256 of their content."""
    from workbench.places.carry import files_of, hashes

    found: dict[str, Path] = {}
    for name in workspace.studies():
        try:
            files = files_of(workspace.study(name))
        except WorkbenchError as error:
            note(f"the study '{name}' is not carried: {error.message}")
            continue
        found |= {sha256: files[path] for path, sha256 in hashes(files).items()}
    return found


def examined(name: str, told: Mapping[str, Sequence[Mapping[str, str]]]) -> Examined:
    """From what ``doctor --json`` said on a host."""
    return Examined(name, [Finding(**row) for row in told["rows"]])


def remove(place: SshPlace, *, json: bool) -> None:
    """Host after host. Raises what went wrong at the first, when all have been tried."""
    from workbench.places import installing
    from workbench.places.connection import Connection

    removed: dict[str, bool] = {}
    broke: list[WorkbenchError] = []
    for name in place.hosts:
        try:
            with Connection(place, name) as connection:
                removed[name] = installing.take_away(connection)
        except WorkbenchError as error:
            broke.append(error)
    if json:
        show_json({"place": place.name, "removed": removed})
    else:
        for name, done in removed.items():
            say(f"{name}: {place.folder} is removed" if done else f"{name}: nothing was there")
    if broke:
        raise broke[0]
