"""``workbench check --against REV``: which commit was the last that was correct."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from workbench.commands.correctness import Correct, correctness
from workbench.commands.options import CheckOptions
from workbench.commands.printing import Output, show_json
from workbench.commands.progress import note
from workbench.commands.sides import Side
from workbench.errors import CannotTell, GateFailed
from workbench.render.document.blocks import Block, Paragraph, words
from workbench.render.document.fields import Field, field, table
from workbench.run.commits import Commit, Repository, repository_of
from workbench.study.workspace import Workspace, find_workspace, including
from workbench.words import NONE

NOW = "now"
WORDS = {True: "correct", False: "wrong", None: "cannot tell"}


@dataclass(frozen=True)
class Checked:
    """A variant at a commit; the empty one is the workspace as it is."""

    variant: str
    commit: Commit | None
    found: Correct

    @property
    def at(self) -> str:
        return self.commit.short if self.commit else NOW


CHECKED: list[Field[Checked]] = [
    field("variant", "variant", lambda c: c.variant),
    field("commit", "commit", lambda c: c.at),
    field("result", "result", lambda c: WORDS[c.found.is_correct]),
    field("why", "why", lambda c: c.found.why or NONE, rank=1),
    field("subject", "subject", lambda c: c.commit.subject if c.commit else NONE, rank=2),
]


def by_age(repository: Repository, commits: Sequence[Commit]) -> list[Commit]:
    """The newest first."""
    known = {commit.sha: commit for commit in commits}
    order = repository.git("rev-list", "--topo-order", *known).split()
    return [known[sha] for sha in order if sha in known]


def checked_at(
    repository: Repository,
    commit: Commit,
    options: CheckOptions,
    names: Sequence[str],
    folder: Path,
    payer: Workspace,
) -> list[Checked]:
    with repository.checked_out([commit]) as (workspace,):
        side = side_of(commit, workspace, options.study, names)
        found = correctness(side, names, folder, payer)
    return [Checked(name, commit, found[name]) for name in names]


def side_of(commit: Commit, workspace: Workspace, study: str | None, names: Sequence[str]) -> Side:
    """With those of the variants that are of other parameters than the ladder's."""
    found = workspace.study(study)
    known = [n for n in names if n.partition("[")[0] in found.variants]
    return Side(commit, workspace, including(found, known)[0])


def run(options: CheckOptions) -> None:
    workspace = find_workspace(options.project)
    repository = repository_of(workspace)
    commits = by_age(repository, [repository.commit(said) for said in options.against or []])
    here = side_of(Commit("", NOW), workspace, options.study, options.variants or [])
    names = including(here.study, options.variants or [])[1] or here.names
    with tempfile.TemporaryDirectory(prefix="workbench-") as scratch:
        found = correctness(here, names, Path(scratch) / NOW, workspace)
        rows = [Checked(name, None, found[name]) for name in names]
        for commit in commits:
            folder = Path(scratch) / commit.sha
            rows += checked_at(repository, commit, options, names, folder, workspace)
    last = {name: last_good(rows, name) for name in names}
    if options.json:
        show_json({"checks": [as_data(row) for row in rows], "last_good": last})
    else:
        Output(options.wide, options.markdown).show(*blocks(rows, last))
    wrong = [r.variant for r in rows if r.commit is None and r.found.is_correct is False]
    if wrong:
        note(f"error: wrong as they are: {', '.join(wrong)}")
        note("hint: `workbench bisect VARIANT GOOD` finds the commit in between")
        raise typer.Exit(GateFailed.exit_code)
    if any(row.commit is None and row.found.is_correct is None for row in rows):
        raise typer.Exit(CannotTell.exit_code)


def last_good(rows: Sequence[Checked], name: str) -> str | None:
    """The newest of the commits at which a variant is correct; rows are the newest first."""
    good = (r for r in rows if r.variant == name and r.commit and r.found.is_correct)
    return next((row.commit.sha for row in good if row.commit), None)


def as_data(row: Checked) -> dict[str, object]:
    return {
        "variant": row.variant,
        "commit": row.commit.sha if row.commit else None,
        "correct": row.found.is_correct,
        "why": row.found.why,
        "recorded": row.found.recorded,
    }


def blocks(rows: Sequence[Checked], last: Mapping[str, str | None]) -> list[Block]:
    told: list[Block] = [table("checked", CHECKED, rows, key=lambda c: c.variant)]
    for name, sha in last.items():
        good = f"last known good: {sha[:10]}" if sha else "none of these commits is known good"
        told.append(Paragraph(words(f"{name}: {good}")))
    return told
