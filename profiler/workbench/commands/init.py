"""``workbench init``."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from workbench.commands.options import InitOptions
from workbench.commands.printing import say, show_json
from workbench.commands.target import shown_path
from workbench.errors import UsageError, unknown
from workbench.study.text import read_text, stands
from workbench.study.workspace import CONFIG_FILE, packaged_content

COMMON = "common"  # what all templates have
IGNORED = ".gitignore"


def starters() -> Path:
    """The packaged folder with a folder a template."""
    return packaged_content() / "starters"


def files_of(template: str) -> dict[Path, bytes]:
    """The files of a template by their place in a workspace. Raises UsageError.

    ``workbench.toml`` is the last: what was interrupted is no workspace yet.
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
    return dict(sorted(found.items(), key=lambda item: item[0].name == CONFIG_FILE))


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
    if stands(root / CONFIG_FILE):
        raise UsageError(
            f"{shown_path(root.resolve())} is a workspace already",
            hint="`workbench new NAME --from VARIANT` adds a variant to it; "
            "`workbench init DIR` makes another one beside it",
        )
    ignored = files.pop(Path(IGNORED.lstrip("."))).decode().splitlines()
    written = [name for name, data in files.items() if write_new(root / name, data)]
    left = [name for name in files if name not in written]
    if lines := merged(root / IGNORED, ignored):
        written.append(Path(IGNORED))
    study = next(name.parts[1] for name in files if name.name == "study.py")
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
    say(f"a workspace with the study {study} ({options.template}) in {root.resolve()}")
    say(*(f"  wrote {name}" for name in written if name != Path(IGNORED)))
    if lines:
        say(f"  {IGNORED}: {', '.join(lines)}")
    say(*(f"  left alone, since it was there: {name}" for name in left))
    if left:
        say("    the study is put together from your files and these: `workbench list` says more")
    return say(f"next, where there is a GPU with ncu (`workbench doctor`): {command}")
