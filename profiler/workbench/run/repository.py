"""Commits of the user's git repository, each checked out in a folder of its own.

``join`` makes one study of two commits: the newer one's, with the older one's variants beside it.
It is an ordinary workspace, so that both are checked, timed in the same sessions and profiled in
one ncu. An older variant is called ``NAME__base``, and so are its files; line numbers stay the
same. Inputs and reference are those of the newer commit, settings those of the older one.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from workbench import bounds
from workbench.children import ended
from workbench.errors import EnvironmentLacks, ToolFailed, UsageError, WorkbenchError
from workbench.run.compilation import empty_scratch
from workbench.study.files import CONFIG_FILE, readable_text
from workbench.study.model import Study, base_name
from workbench.study.sources import CODE, source_files
from workbench.study.workspace import Workspace, find_workspace

FULL = 1 << 20  # bytes that are free on a disk where something did not fit
# What git tells its hooks: another command would take them for its own repository and index.
OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX")
# No hook of the repository runs, and nothing of what git says is translated.
EVERY_BRANCH = "+refs/heads/*:refs/remotes/origin/*"
_QUIET = ("-c", f"core.hooksPath={os.devnull}", "-c", "advice.detachedHead=false")


@dataclass(frozen=True)
class Commit:
    """``sha`` in full; ``said`` is how the user called it."""

    sha: str
    said: str

    @property
    def short(self) -> str:
        return self.sha[:10]


@dataclass(frozen=True)
class Repository:
    """The repository around a workspace; ``inside`` is where in it the workspace stands."""

    top: Path
    inside: Path

    def git(self, *arguments: str) -> str:
        """Run git and return what it prints. Raises ToolFailed or EnvironmentLacks."""
        return _git(self.top, *arguments)

    def commit(self, said: str) -> Commit:
        """Raises UsageError for what names no commit here."""
        try:
            sha = self.git(
                "rev-parse", "--verify", "--quiet", "--end-of-options", f"{said}^{{commit}}"
            )
        except ToolFailed:
            what = f"'{said}' is no commit of {self.top}"
            raise UsageError(what, hint=self._where_else(said)) from None
        return Commit(sha.strip(), said)

    def _where_else(self, said: str) -> str:
        """A hint for a commit that is not here."""
        if self.git("for-each-ref", f"refs/remotes/origin/{said}"):
            return f"name the remote's branch: origin/{said}"
        is_shallow = self.git("rev-parse", "--is-shallow-repository").strip() == "true"
        fetched = self.git("config", "--get", "--default", "", "remote.origin.fetch").strip()
        if not is_shallow and (not fetched or "*" in fetched):
            return "`git log --oneline` lists them"
        command = f"git fetch {'--unshallow ' * is_shallow}origin '{EVERY_BRANCH}'"
        return f"this clone has only a part: `{command}`; then name a branch as origin/NAME"

    @property
    def is_dirty(self) -> bool:
        return bool(self.git("status", "--porcelain", "--", str(self.inside)).strip())

    @contextmanager
    def worktrees(self) -> Iterator[Path]:
        """Make a folder for worktrees. Git forgets them with it, and those of killed runs."""
        self.git("worktree", "prune")
        try:
            with empty_scratch("workbench-commits-") as scratch:
                yield scratch.resolve()
        finally:
            with suppress(ToolFailed):
                self.git("worktree", "prune")

    def worded(self, message: str, root: Path, commit: Commit) -> str:
        """Name the files of a commit's workspace at ``root`` as git does: COMMIT:PATH."""
        inside = "" if self.inside == Path() else f"{self.inside.as_posix()}/"
        return message.replace(f"{root}/", f"{commit.short}:{inside}")

    @contextmanager
    def workspace_at(self, commit: Commit, folder: Path) -> Iterator[Workspace]:
        """Check a commit out below ``folder``. Raises UsageError where it has no workspace."""
        place = folder / str(sum(1 for _ in folder.iterdir()))
        add = ("worktree", "add", "--detach", "--quiet", "--force", str(place), commit.sha)
        try:
            try:
                self.git(*add)
            except ToolFailed:  # another run that ends lets git delete also a new .git/worktrees
                self.git(*add)
        except ToolFailed:  # git does not say why it could not write
            if shutil.disk_usage(folder).free < FULL:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
            raise
        try:
            root = place / self.inside
            if not (root / CONFIG_FILE).is_file():
                raise UsageError(
                    f"{commit.said} has no {CONFIG_FILE} in {self.inside}/",
                    hint="name a commit in which the workspace stands where it does now",
                )
            yield find_workspace(root)
        except WorkbenchError as error:
            error.message = self.worded(error.message, place / self.inside, commit)
            raise


def repository_of(workspace: Workspace) -> Repository:
    """The one that a workspace stands in. Raises UsageError where that is none."""
    if workspace.packaged:
        raise UsageError(
            "the built-in workspace has no history",
            hint=f"go into a git repository with a {CONFIG_FILE}, or name it with --project",
        )
    try:
        top = Path(_git(workspace.root, "rev-parse", "--show-toplevel").strip()).resolve()
    except ToolFailed as error:
        if "dubious ownership" in error.message:  # as in a container of CI
            raise EnvironmentLacks(
                f"git trusts nobody's repository but one's own: {workspace.root} is another user's",
                hint=f"git config --global --add safe.directory {workspace.root}, if you trust it",
            ) from None
        if "not a git repository" not in error.message:
            raise
        raise UsageError(
            f"{workspace.root} is in no git repository", hint="`git init` there, and commit"
        ) from None
    return Repository(top, workspace.root.resolve().relative_to(top))


def environment() -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if name not in OF_A_HOOK}
    return {**variables, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", *_QUIET, *arguments]
    with TemporaryFile("w+", errors="replace") as out, TemporaryFile("w+", errors="replace") as err:
        streams = {"stdout": out, "stderr": err}
        try:
            code = ended(command, bounds.GIT_SECONDS, cwd=folder, env=environment(), **streams)
        except FileNotFoundError:
            hint = "install git, then try again"
            raise EnvironmentLacks("git is not installed", hint=hint) from None
        for stream in (out, err):
            stream.seek(0)
        printed, told = out.read(), err.read()
    if code is None:
        raise ToolFailed(f"git {arguments[0]} took longer than {bounds.GIT_SECONDS:g} s")
    if code:
        lines = told.strip().splitlines() or [f"exit {code}"]
        said = "\n".join(lines if len(lines) <= 6 else [*lines[:3], "...", *lines[-2:]])
        raise ToolFailed(
            said, ran=f"git {' '.join(arguments)}", hint="git's own words above say why"
        )
    return printed


MARK = "__base"


def older(variant: str) -> str:
    """Name a variant of the older commit beside that of the newer one."""
    base = base_name(variant)
    return f"{base}{MARK}{variant.removeprefix(base)}"


def join(
    folder: Path, base: Study, head: Study, base_root: Path, pairs: Sequence[str], control: str
) -> Workspace:
    """The workspace of ``pairs``, variants that both commits have, in ``folder``. Its settings are
    those of the older commit.

    ``control`` is a variant that is the same at both, "" where there is none: it comes first, so
    that an A/A control of it is timed in every session.
    """
    kernels, ladder = folder / "kernels" / head.name, folder / "ablations" / head.name
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(head.folder, kernels, ignore=ignored, dirs_exist_ok=True)
    ladder.mkdir(parents=True, exist_ok=True)
    shutil.copy(base_root / CONFIG_FILE, folder / CONFIG_FILE)
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
    # The control, then each pair: what the older commit has, and upon it the newer one's.
    steps = [(control, "")] if control else []
    for variant in pairs:
        steps += [(older(variant), steps[0][0] if steps else ""), (variant, older(variant))]
    written = ["schema_version = 1"]
    for variant, parent in steps:
        written += ["", "[[step]]", f"variant = {json.dumps(variant)}"]
        written += [f"parent = {json.dumps(parent)}"] if parent else []
        change = "the same at the newer commit" if parent else "as it was"
        written.append(f"key_change = {json.dumps(change)}")
    (ladder / "ablation.toml").write_text("\n".join([*written, ""]), encoding="utf-8")
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
        is_own_file = named in names or Path(named).name in by_end
        return match[0].replace(named, marked(named)) if is_own_file else match[0]

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
