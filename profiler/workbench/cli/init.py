"""``workbench init``."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from workbench.cli.options import InitOptions
from workbench.cli.printing import say, show_json
from workbench.errors import UsageError, unknown
from workbench.evidence.store import write_bytes
from workbench.study.own_files import all_or_nothing, resolved, write_new
from workbench.study.text import read_text, stands
from workbench.study.workspace import CONFIG_FILE, packaged_content

COMMON = "common"  # what all templates have
IGNORED = ".gitignore"
STUDY = "study.py"


def starters() -> Path:
    """The packaged folder with a folder a template."""
    return packaged_content() / "starters"


def files_of(template: str) -> dict[Path, bytes]:
    """The files of a template by their place in a workspace. Raises UsageError.

    The study is the last: what was interrupted can be done again.
    """
    names = sorted(path.name for path in starters().iterdir() if path.is_dir())
    names.remove(COMMON)
    if template not in names:
        raise unknown("template", template, names)
    found = {
        path.relative_to(folder): path.read_bytes()
        for folder in (starters() / COMMON, starters() / template)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return dict(sorted(found.items(), key=lambda item: item[0].name == STUDY))


def merged(path: Path, lines: list[str]) -> list[str]:
    """Append the lines that ``path`` lacks; what is there stays. Returns those appended."""
    there = read_text(path) if stands(path) else ""
    known = {line.strip() for line in there.splitlines()}
    missing = [line for line in lines if line not in known]
    if missing:
        gap = "\n" if there and not there.endswith("\n") else ""
        added = "".join(f"{line}\n" for line in missing)
        write_bytes(path, f"{there}{gap}{added}".encode())
    return missing


def run(options: InitOptions) -> None:
    root = options.folder
    files = files_of(options.template)
    if studies := sorted(path.parent.name for path in root.glob(f"kernels/*/{STUDY}")):
        raise UsageError(
            f"{resolved(root)} has a study already: {', '.join(studies)}",
            hint="`workbench new NAME --from VARIANT` adds a variant to it; "
            "`workbench init DIR` makes another workspace",
        )
    ignored = files.pop(Path(IGNORED.lstrip("."))).decode().splitlines()
    with all_or_nothing() as made:
        written = [n for n, data in files.items() if write_new(root / n, data, root, made)]
        left = [name for name in files if name not in written]
        if lines := merged(root / IGNORED, ignored):
            written.append(Path(IGNORED))
    study = next(name.parts[1] for name in files if name.name == STUDY)
    here = resolved(root) == Path.cwd()
    command = ("" if here else f"cd {quote(str(root))} && ") + "workbench ablate"
    if options.json:
        return show_json(
            {
                "folder": str(root),
                "template": options.template,
                "study": study,
                "written": list(map(str, written)),
                "left_alone": list(map(str, left)),
                "next": command,
            }
        )
    said = [f"a workspace with the study {study} ({options.template}) in {resolved(root)}"]
    said += [f"  wrote {name}" for name in written if name != Path(IGNORED)]
    if lines:
        said.append(f"  {IGNORED}: {', '.join(lines)}")
    if left:
        said += [f"  left alone, since it was there: {name}" for name in left]
        said.append("  the study is put together from those and these: `workbench list` tells more")
    above = [folder for folder in resolved(root).parents if stands(folder / CONFIG_FILE)]
    if above:
        said.append(f"  it stands inside another workspace, {above[0]}, which sees nothing of it")
    return say(*said, f"next, where there is a GPU with ncu (`workbench doctor`): {command}")
