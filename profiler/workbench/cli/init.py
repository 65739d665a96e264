"""``init``: a new workspace, or files for coding agents in one that exists."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from workbench.app.new import AGENTS, IGNORED, NewWorkspace, add_agents, new_workspace
from workbench.cli.options import InitOptions
from workbench.cli.streams import show
from workbench.render import in_short
from workbench.render.as_json import Data, shown_fields
from workbench.study.files import CONFIG_FILE, resolved, stands
from workbench.words import INSTALL


def run(options: InitOptions) -> None:
    root = options.folder
    if options.agents and stands(root / CONFIG_FILE):
        show(options, (root, add_agents(root)))
    else:
        show(options, new_workspace(root, options.template, agents=options.agents))


def data(result: NewWorkspace | tuple[Path, list[Path]]) -> object:
    if isinstance(result, NewWorkspace):
        return result
    folder, written = result
    return {"folder": folder, "written": written}


def brief(result: NewWorkspace | tuple[Path, list[Path]]) -> Data:
    if isinstance(result, NewWorkspace):
        return {**shown_fields(result), "next_command": f"{result.next_command} --brief"}
    folder, written = result
    return {
        "folder": str(folder),
        "written": [str(path) for path in written],
        **in_short.command("", "list", "--project", str(folder)),
    }


def lines(result: NewWorkspace | tuple[Path, list[Path]]) -> list[str]:
    if not isinstance(result, NewWorkspace):
        left = [name for name in AGENTS if name not in result[1]]
        said = [f"wrote {name}" for name in result[1]]
        return [*said, *(f"left alone, since it was there: {name}" for name in left)]
    root, template = resolved(result.folder), result.template
    said = [f"a workspace with the study {result.study} ({template}) in {root}"]
    said += [f"  wrote {name}" for name in result.written if name != Path(IGNORED)]
    if result.ignored:
        said.append(f"  {IGNORED}: {', '.join(result.ignored)}")
    if result.left_alone:
        said += [f"  left alone, since it was there: {name}" for name in result.left_alone]
        said.append("  the study consists of both: `workbench list` prints more")
    above = [folder for folder in root.parents if stands(folder / CONFIG_FILE)]
    if above:
        said.append(f"  it stands inside another workspace, {above[0]}, which sees nothing of it")
    if find_spec("torch") is None:
        said.append(f"first: {INSTALL}")
    verb = "build" if template == "cuda" else "check"
    said.append(f"without a GPU: {result.next_command.replace('ablate', verb)}")
    where = "where there is a GPU with ncu (`workbench doctor`)"
    return [*said, f"next, {where}: {result.next_command}"]
