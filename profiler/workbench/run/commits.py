"""Commits of the user's git repository, each checked out in a folder of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import EnvironmentLacks, ToolFailed, UsageError
from workbench.run.scratch import empty_scratch
from workbench.study.workspace import CONFIG_FILE, Workspace, find_workspace

SECONDS = 120.0  # for one call of git
# No hook of the repository runs, and nothing of what git says is translated.
_QUIET = ("-c", f"core.hooksPath={os.devnull}", "-c", "advice.detachedHead=false")


@dataclass(frozen=True)
class Commit:
    """``sha`` in full; ``said`` is how the user called it, ``subject`` the message's first line."""

    sha: str
    said: str
    subject: str = ""

    @property
    def short(self) -> str:
        """As tables show it."""
        return self.sha[:10]


@dataclass(frozen=True)
class Repository:
    """The repository around a workspace; ``inside`` is where in it the workspace stands."""

    top: Path
    inside: Path

    def git(self, *arguments: str) -> str:
        """What git prints. Raises ToolFailed with its words, and EnvironmentLacks without a git."""
        return _git(self.top, *arguments)

    def commit(self, said: str) -> Commit:
        """Raises UsageError for what names no commit here."""
        try:
            sha = self.git(
                "rev-parse", "--verify", "--quiet", "--end-of-options", f"{said}^{{commit}}"
            )
        except ToolFailed:
            shallow = self.git("rev-parse", "--is-shallow-repository").strip() == "true"
            raise UsageError(
                f"'{said}' is no commit of {self.top}",
                hint="this clone is shallow: fetch all of it (`git fetch --unshallow`)"
                if shallow
                else "`git log --oneline` lists them",
            ) from None
        sha = sha.strip()
        return Commit(sha, said, self.git("show", "-s", "--format=%s", sha).strip())

    def between(self, good: Commit, bad: Commit) -> list[Commit]:
        """From ``good`` to ``bad``, both included, along the first parents. Raises UsageError where
        the one does not lead to the other.
        """
        listed = self.git(
            "rev-list", "--first-parent", "--reverse", "--format=%s", f"{good.sha}..{bad.sha}"
        ).splitlines()
        shas = [line.removeprefix("commit ") for line in listed[::2]]
        leads = shas and self.git("rev-parse", "--verify", f"{shas[0]}^").strip() == good.sha
        if not leads:
            raise UsageError(
                f"{good.said} does not lead to {bad.said}",
                hint="name an older commit of the same branch first, then a newer one",
            )
        found = [
            Commit(sha, sha[:10], subject) for sha, subject in zip(shas, listed[1::2], strict=True)
        ]
        return [good, *found]

    @property
    def is_dirty(self) -> bool:
        """Whether files of the workspace differ from the commit that is checked out."""
        return bool(self.git("status", "--porcelain", "--", str(self.inside)).strip())

    @contextmanager
    def checked_out(self, commits: Sequence[Commit]) -> Iterator[list[Workspace]]:
        """Their workspaces, each in a worktree that is gone afterwards. Raises UsageError for a
        commit that has no workspace there.
        """
        with empty_scratch() as scratch:
            places = [scratch / f"{number}-{one.short}" for number, one in enumerate(commits)]
            try:
                for place, one in zip(places, commits, strict=True):
                    self.git("worktree", "add", "--detach", "--quiet", str(place), one.sha)
                yield [
                    self.workspace(place, one) for place, one in zip(places, commits, strict=True)
                ]
            finally:
                for place in filter(Path.exists, places):
                    with suppress(ToolFailed):
                        self.git("worktree", "remove", "--force", str(place))

    def workspace(self, place: Path, commit: Commit) -> Workspace:
        """That of a commit that is checked out at ``place``."""
        root = place / self.inside
        if not (root / CONFIG_FILE).is_file():
            raise UsageError(
                f"{commit.said} has no {CONFIG_FILE} in {self.inside}/",
                hint="name a commit in which the workspace stands where it does now",
            )
        return find_workspace(root)


def repository_of(workspace: Workspace) -> Repository:
    """The one that a workspace stands in. Raises UsageError where that is none."""
    if workspace.packaged:
        raise UsageError(
            "the built-in workspace has no history",
            hint=f"go into a git repository with a {CONFIG_FILE}, or name it with --project",
        )
    try:
        top = Path(_git(workspace.root, "rev-parse", "--show-toplevel").strip()).resolve()
    except ToolFailed:
        raise UsageError(
            f"{workspace.root} is in no git repository", hint="`git init` there, and commit"
        ) from None
    return Repository(top, workspace.root.resolve().relative_to(top))


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", *_QUIET, *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
        )
    except FileNotFoundError:
        raise EnvironmentLacks("git is not installed", hint="install git, then try again") from None
    except subprocess.TimeoutExpired:
        raise ToolFailed(f"git {arguments[0]} took longer than {SECONDS:g} s") from None
    if done.returncode:
        said = done.stderr.strip() or f"exit {done.returncode}"
        raise ToolFailed(
            said, ran=f"git {' '.join(arguments)}", hint="git's own words above say why"
        )
    return done.stdout
