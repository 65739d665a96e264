"""The studies of two commits side by side, and what is told of those that have no other side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from workbench.commands.sides import Side
from workbench.errors import UsageError, WorkbenchError, unknown
from workbench.judge.commits import Change, Spot
from workbench.run.commits import Commit, Repository
from workbench.study.workspace import Workspace
from workbench.words import Cause, Move


@dataclass(frozen=True)
class Compared:
    """The changes of one study; ``folder`` is where its files stand in the workspace."""

    study: str
    folder: str
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Unreadable:
    """A study whose files cannot be read at a commit."""

    why: str


@dataclass(frozen=True)
class Paired:
    """A study at both commits; None where one has no such study."""

    name: str
    base: Side | Unreadable | None
    head: Side | Unreadable | None

    @property
    def folder(self) -> str:
        return f"kernels/{self.name}"

    @property
    def sides(self) -> tuple[Side, Side] | None:
        """What can be compared: a new study beside one without variants."""
        if not isinstance(self.head, Side) or isinstance(self.base, Unreadable):
            return None
        return self.base or self.head.without_variants, self.head

    @property
    def alone(self) -> Compared:
        """What is told of a study that cannot be compared."""
        base, head = self.base, self.head
        names = next((one.names for one in (head, base) if isinstance(one, Side)), [self.name])
        if head is None:
            one = Change("", Move.GONE, "its study is not there any more")
        elif isinstance(head, Unreadable) and not isinstance(base, Unreadable):
            one = Change("", Move.BROKEN, head.why, cause=Cause.SOURCE, spot=_spot(head.why))
        else:
            why = base.why if isinstance(base, Unreadable) else ""
            one = Change("", Move.CANNOT_TELL, f"could not be read before: {why}", spot=_spot(why))
        changes = tuple(replace(one, variant=name) for name in names)
        return Compared(self.name, self.folder, changes)


def _spot(why: str) -> Spot:
    found = re.search(r"/study\.py:(\d+)", why)
    return Spot("study.py", int(found[1]) if found else 1, "the study")


def paired(
    repository: Repository,
    commits: Sequence[Commit],
    workspaces: Sequence[Workspace],
    wanted: str | None,
) -> list[Paired]:
    """All studies of both commits, those of the newer first, or the ``wanted`` one. Raises
    UsageError where that, or any, is at neither.
    """
    older, newer = known = [workspace.studies() for workspace in workspaces]
    names = list(dict.fromkeys([*newer, *older]))
    if wanted and wanted not in names:
        raise unknown("study", wanted, names)
    if not names:
        raise UsageError(
            f"neither {commits[0].said} nor {commits[1].said} has a study",
            hint="a study is a folder kernels/NAME with a study.py",
        )

    def at(place: int, name: str) -> Side | Unreadable | None:
        if name not in known[place]:
            return None
        commit, workspace = commits[place], workspaces[place]
        try:
            return Side(commit, workspace, workspace.study(name))
        except WorkbenchError as error:
            return Unreadable(repository.worded(error.message, workspace.root, commit))

    return [Paired(n, at(0, n), at(1, n)) for n in ([wanted] if wanted else names)]
