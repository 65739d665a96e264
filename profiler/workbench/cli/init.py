"""``workbench init``."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from workbench.cli.options import InitOptions
from workbench.cli.printing import say, show_json
from workbench.errors import UsageError, unknown
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
        with path.open("a", encoding="utf-8") as file:
            file.write(gap + "".join(f"{line}\n" for line in missing))
    return missing


def write_new(path: Path, data: bytes) -> bool:
    """False where something of that name is there already: it is left alone.

    Raises UsageError where a folder on the way is a file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        if stands(path):
            return False
        in_the_way(path.parent)
    except NotADirectoryError:
        in_the_way(path.parent)
    return True


def in_the_way(folder: Path) -> None:
    file = next(p for p in (folder, *folder.parents) if stands(p) and not p.is_dir())
    raise UsageError(
        f"{file} is a file, where a folder is needed", hint="move it away, or name another folder"
    )


def run(options: InitOptions) -> None:
    root = options.folder
    files = files_of(options.template)
    if studies := sorted(path.parent.name for path in root.glob(f"kernels/*/{STUDY}")):
        raise UsageError(
            f"{root.resolve()} has a study already: {', '.join(studies)}",
            hint="`workbench new NAME --from VARIANT` adds a variant to it; "
            "`workbench init DIR` makes another workspace",
        )
    ignored = files.pop(Path(IGNORED.lstrip("."))).decode().splitlines()
    written = [name for name, data in files.items() if write_new(root / name, data)]
    left = [name for name in files if name not in written]
    if lines := merged(root / IGNORED, ignored):
        written.append(Path(IGNORED))
    study = next(name.parts[1] for name in files if name.name == STUDY)
    here = root.resolve() == Path.cwd()
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
    said = [f"a workspace with the study {study} ({options.template}) in {root.resolve()}"]
    said += [f"  wrote {name}" for name in written if name != Path(IGNORED)]
    if lines:
        said.append(f"  {IGNORED}: {', '.join(lines)}")
    if left:
        said += [f"  left alone, since it was there: {name}" for name in left]
        said.append("  the study is put together from those and these: `workbench list` tells more")
    above = [folder for folder in root.resolve().parents if stands(folder / CONFIG_FILE)]
    if above:
        said.append(f"  it stands inside another workspace, {above[0]}, which sees nothing of it")
    return say(*said, f"next, where there is a GPU with ncu (`workbench doctor`): {command}")
