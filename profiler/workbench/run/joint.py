"""One study of two commits: the newer one's, with the older one's variants beside it.

It is an ordinary workspace, so that both are checked, timed in the same sessions and profiled in
one ncu by what measures any study. An older variant is called ``NAME__base``, and so are its files;
line numbers stay as they are. Inputs and reference are those of the newer commit.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.study.model import Study
from workbench.study.params import base_name
from workbench.study.sources import CODE, source_files
from workbench.study.text import readable_text
from workbench.study.workspace import CONFIG_FILE, Workspace, find_workspace

MARK = "__base"


def older(variant: str) -> str:
    """What a variant of the older commit is called beside that of the newer one."""
    base = base_name(variant)
    return f"{base}{MARK}{variant.removeprefix(base)}"


def join(
    folder: Path, base: Study, head: Study, head_root: Path, pairs: Sequence[str], control: str
) -> Workspace:
    """The workspace of ``pairs``, variants that both commits have, in ``folder``.

    ``control`` is a variant that is the same at both, "" where there is none: it comes first, so
    that a twin of it is timed in every session.
    """
    kernels, ladder = folder / "kernels" / head.name, folder / "ablations" / head.name
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(head.folder, kernels, ignore=ignored, dirs_exist_ok=True)
    ladder.mkdir(parents=True, exist_ok=True)
    shutil.copy(head_root / CONFIG_FILE, folder / CONFIG_FILE)
    names = {
        path.relative_to(base.folder).as_posix(): path
        for variant in pairs
        for path in source_files(base, base.variants[variant])
    }
    for name, path in names.items():
        target = kernels / marked(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in CODE:
            target.write_text(renamed(readable_text(path), path.suffix, names), encoding="utf-8")
        else:
            shutil.copy(path, target)
    (ladder / "ablation.toml").write_text(_ladder(head, pairs, control), encoding="utf-8")
    return find_workspace(folder)


def marked(name: str) -> str:
    """A file's name as the older commit's is called."""
    path = Path(name)
    return path.with_name(f"{path.stem}{MARK}{path.suffix}").as_posix()


def renamed(text: str, suffix: str, names: Mapping[str, object]) -> str:
    """A source of the older commit that names its own files, on the lines where they stood."""
    by_end = {Path(name).name: name for name in names}

    def new_name(match: re.Match[str]) -> str:
        named = match["name"]
        known = named in names or Path(named).name in by_end
        return match[0].replace(named, marked(named)) if known else match[0]

    if suffix != ".py":
        return re.sub(r'^\s*#\s*include\s*"(?P<name>[^"]+)"', new_name, text, flags=re.MULTILINE)
    text = re.sub(r"""(["'])(?P<name>[^"'\\\n]+\.\w+)\1""", new_name, text)
    return re.sub(
        r"""\bcuda\.variant\(\s*(["'])(?P<name>\w+)\1""",
        lambda m: (
            m[0].replace(m["name"], f"{m['name']}{MARK}") if f"{m['name']}.py" in names else m[0]
        ),
        text,
    )


def _ladder(head: Study, pairs: Sequence[str], control: str) -> str:
    """The control, then each pair: what the older commit has, and upon it the newer one's."""
    steps = [(control, "")] if control else []
    for variant in pairs:
        steps += [(older(variant), steps[0][0] if steps else ""), (variant, older(variant))]
    written = ["schema_version = 1"]
    if head.ladder.cache_control:
        written.append(f"cache_control = {json.dumps(head.ladder.cache_control)}")
    for variant, parent in steps:
        written += ["", "[[step]]", f"variant = {json.dumps(variant)}"]
        written += [f"parent = {json.dumps(parent)}"] if parent else []
        written.append(
            'key_change = "the same at the newer commit"' if parent else 'key_change = "as it was"'
        )
    return "\n".join(written) + "\n"
