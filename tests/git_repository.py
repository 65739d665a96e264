"""Git repositories made by tests: a workspace somewhere inside, and a commit a change."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from workspaces import rewrite

IDENTITY = {
    "GIT_AUTHOR_NAME": "test",
    "GIT_AUTHOR_EMAIL": "test@example.org",
    "GIT_COMMITTER_NAME": "test",
    "GIT_COMMITTER_EMAIL": "test@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


@dataclass(frozen=True)
class Repository:
    """``workspace`` stands somewhere in the repository at ``top``."""

    top: Path
    workspace: Path

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "init.defaultBranch=main", *arguments],
            cwd=self.top,
            env={**os.environ, **IDENTITY},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        """All that there is; the commit's name."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")

    def edit(self, file: str, old: str, new: str) -> str:
        """One commit that replaces text in a file of the workspace."""
        rewrite(self.workspace / file, old, new)
        return self.commit(f"{file}: {new.strip()[:20]}")


def repository(top: Path, inside: str = ".") -> Repository:
    """With what already stands in ``top`` as its first commit."""
    made = Repository(top, top / inside)
    made.git("init", "--quiet")
    made.commit("first")
    return made
