"""Hooks of mkdocs.yml: README is the home page, reports are pages, and other links out of docs/
lead to the repository.

Set ``repo_url`` to make them links; without it their text alone stays.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[1]
HOME = "index.md"
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    home = (ROOT / "README.md").read_text("utf-8")
    files.append(File.generated(config, HOME, content=home))
    for path in sorted((ROOT / "reports").glob("*/*.*")):
        if path.suffix in (".md", ".svg"):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(text: str, *, page: Any, config: MkDocsConfig, files: Files) -> str:
    """The base of a link is the folder of the page: README's is the repository."""
    base = "" if page.file.src_uri == HOME else "docs"

    def link(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(base, target))
        if not (ROOT / path).exists():
            return match[0]  # which mkdocs reports
        inside = path.removeprefix("docs/")
        if files.get_file_from_path(inside):
            return f"[{label}]({inside}{anchor})"
        repository = (config.repo_url or "").rstrip("/")
        return f"[{label}]({repository}/blob/HEAD/{path})" if repository else label

    return LINK.sub(link, text).replace('"../reports/', '"reports/')
