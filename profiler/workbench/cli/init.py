"""``init``: a workspace from a template, or files for coding agents in one that exists."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from workbench.cli.options import InitOptions
from workbench.cli.streams import show
from workbench.errors import UsageError, unknown
from workbench.render import in_short
from workbench.render.as_json import Data, shown_fields
from workbench.study.files import (
    CONFIG_FILE,
    all_or_nothing,
    alone,
    for_shell,
    make_folder,
    packaged_content,
    read_text,
    resolved,
    stands,
    write_bytes,
    write_new,
)
from workbench.words import INSTALL

SKILL = Path("skills", "workbench")
AGENTS = {  # what `init --agents` adds: place in the workspace, file of the starters
    Path("AGENTS.md"): "AGENTS.md",
    Path(".mcp.json"): "mcp.json",
    **{
        Path(home) / SKILL / name: name
        for home in (".agents", ".claude")
        for name in ("SKILL.md", "reference.md")
    },
}
AGENTS_FOLDER, COMMON = "agents", "common"  # what all templates have
IGNORED = ".gitignore"
STUDY = "study.py"


@dataclass(frozen=True)
class NewWorkspace:
    """``written`` are the files that were made, ``left_alone`` were there; ``ignored`` are the
    lines that ``.gitignore`` lacked. ``next_command`` is the one to go on with.
    """

    folder: Path
    template: str
    study: str
    written: list[Path]
    ignored: list[str] = field(repr=False)
    left_alone: list[Path]
    next_command: str


def run(options: InitOptions) -> None:
    root = options.folder
    if options.agents and stands(root / CONFIG_FILE):
        show(options, (root, add_agents(root)))
    else:
        show(options, new_workspace(root, options.template, agents=options.agents))


def new_workspace(root: Path, template: str, *, agents: bool = False) -> NewWorkspace:
    """Write a workspace, with ``agents`` also the files for coding agents. Raises UsageError for an
    unknown template, and where there is a study already.
    """
    files = (for_agents() if agents else {}) | files_of(template)
    ignored = files.pop(Path(IGNORED.lstrip("."))).decode().splitlines()
    with all_or_nothing() as made, alone(make_folder(root, made)):
        if studies := sorted(path.parent.name for path in root.glob(f"kernels/*/{STUDY}")):
            raise UsageError(
                f"{resolved(root)} has a study already: {', '.join(studies)}",
                hint="`workbench new NAME --from VARIANT --change TEXT` adds a variant to it; "
                "`workbench init DIR` makes another workspace",
            )
        written = [n for n, data in files.items() if write_new(root / n, data, root, made)]
        lines = merged(root / IGNORED, ignored)
    left = [name for name in files if name not in written]
    study = next(name.parts[1] for name in files if name.name == STUDY)
    written += [Path(IGNORED)] if lines else []
    here = "" if resolved(root) == Path.cwd() else f"cd {for_shell(root)} && "
    following = f"{here}workbench ablate"
    return NewWorkspace(root, template, study, written, lines, left, following)


def files_of(template: str) -> dict[Path, bytes]:
    """The files of a template by their place in a workspace. Raises UsageError.

    The study is the last: what was interrupted can be done again.
    """
    names = sorted(path.name for path in starters().iterdir() if path.is_dir())
    names = [name for name in names if name not in (COMMON, AGENTS_FOLDER)]
    if template not in names:
        raise unknown("template", template, names)
    files = {
        path.relative_to(folder): path.read_bytes()
        for folder in (starters() / COMMON, starters() / template)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return dict(sorted(files.items(), key=lambda item: item[0].name == STUDY))


def starters() -> Path:
    """The packaged folder with a folder a template."""
    return packaged_content() / "starters"


def merged(path: Path, lines: list[str]) -> list[str]:
    """Append the lines that ``path`` lacks; what is there stays. Returns those appended."""
    there = read_text(path) if stands(path) else ""
    present = {line.strip() for line in there.splitlines()}
    missing = [line for line in lines if line not in present]
    if missing:
        gap = "\n" if there and not there.endswith("\n") else ""
        added = "".join(f"{line}\n" for line in missing)
        write_bytes(path, f"{there}{gap}{added}".encode())
    return missing


def for_agents() -> dict[Path, bytes]:
    """The files for coding agents by their place in a workspace."""
    folder = starters() / AGENTS_FOLDER
    return {place: (folder / name).read_bytes() for place, name in AGENTS.items()}


def add_agents(root: Path) -> list[Path]:
    """Write the files for coding agents that a workspace lacks; returns those written."""
    with alone(root), all_or_nothing() as made:
        return [n for n, data in for_agents().items() if write_new(root / n, data, root, made)]


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
