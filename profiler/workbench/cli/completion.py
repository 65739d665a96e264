"""Names for Tab: studies, variants, shapes, GPUs and templates, by files that run nothing.

Tab must answer at once, so this reads TOML and names of folders, and imports no part of the engine.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

Typed = Mapping[str, str | Path | None]  # the options before the word that Tab completes
CONFIG = "workbench.toml"  # study.workspace has it too, and imports too much for Tab


def content() -> Path:
    """The folder of the built-in workspace: inside the wheel, or the checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "_content"
    return inside if inside.is_dir() else package.parents[1]


def workspace(typed: Typed) -> Path:
    """The folder that the verb would use."""
    here = Path.cwd()
    above = [folder for folder in (here, *here.parents) if (folder / CONFIG).is_file()]
    return Path(typed.get("project") or (above or [content()])[0])


def all_studies(root: Path) -> list[str]:
    return sorted(path.parent.name for path in root.glob("kernels/*/study.py"))


def study(typed: Typed) -> tuple[Path, str]:
    root = workspace(typed)
    names = all_studies(root)
    default = tomllib.loads((root / CONFIG).read_text("utf-8")).get("study")
    return root, str(typed.get("study") or default or names[0])


def studies(typed: Typed) -> Iterator[str]:
    yield from all_studies(workspace(typed))


def variants(typed: Typed) -> Iterator[str]:
    root, name = study(typed)
    ladder = tomllib.loads((root / "ablations" / name / "ablation.toml").read_text("utf-8"))
    for table in ("step", "reference"):
        yield from (each["variant"] for each in ladder.get(table, []))


def shapes(typed: Typed) -> Iterator[str]:
    """Those written as keys in study.py, and those with evidence."""
    root, name = study(typed)
    tree = ast.parse((root / "kernels" / name / "study.py").read_text("utf-8"))
    for node in ast.walk(tree):
        named = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "shapes"
        if named and isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            yield from (key.value for key in node.value.keys if isinstance(key, ast.Constant))  # type: ignore[misc]
    evidence = root / "ablations" / name / "evidence"
    yield from (path.parent.name for path in evidence.glob("*/*/captures.json"))


def gpus(typed: Typed) -> Iterator[str]:
    root, name = study(typed)
    evidence = root / "ablations" / name / "evidence"
    yield from (path.name for path in evidence.iterdir() if path.is_dir())


def templates(typed: Typed) -> Iterator[str]:
    folders = (path.name for path in (content() / "starters").iterdir() if path.is_dir())
    yield from (name for name in folders if name not in ("common", "agents"))


def completing(names: Callable[[Typed], Iterator[str]]) -> Callable[..., list[str]]:
    """What Typer calls; a file that cannot be read completes nothing."""

    def complete(ctx: Any, args: list[str], incomplete: str) -> list[str]:
        unique: dict[str, None] = {}
        with suppress(OSError, ValueError, KeyError, IndexError, TypeError, SyntaxError):
            for name in names(ctx.params):
                unique[str(name)] = None
        return [name for name in unique if name.startswith(incomplete)]

    return complete
