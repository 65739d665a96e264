"""``workbench gate``."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.app.executor import Executor
from workbench.app.measure import collectable
from workbench.app.sides import Side, Together, build_all, measure_together, recorded_anew
from workbench.app.target import require_arch
from workbench.cli.options import GateOptions
from workbench.cli.printing import tell
from workbench.cli.streams import executor, note
from workbench.derive.diff.side_by_side import kernel_line
from workbench.derive.diff.source_diff import gained, profiled, source_diff
from workbench.errors import CannotTell, GateFailed, UsageError, WorkbenchError, unknown
from workbench.evidence.store import write_bytes
from workbench.judge.commits import Change, Spot, judge_change, with_controls
from workbench.judge.differences import is_same
from workbench.judge.findings import Finding, finding
from workbench.judge.rules import changed_rules
from workbench.ncu.captures import Captures
from workbench.render.ci import junit, sarif
from workbench.render.document import commits as document
from workbench.run import machine
from workbench.run.commits import Commit, Repository, older, repository_of
from workbench.study.sources import CODE, plain_digest, source_files, source_texts, virtual_name
from workbench.study.text import readable_text
from workbench.study.workspace import Workspace, find_workspace
from workbench.words import Cause, Move


@dataclass(frozen=True)
class Compared:
    """The changes of one study; ``folder`` is where its files stand in the workspace."""

    study: str
    folder: str
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Paired:
    """A study at both commits: why its files cannot be read there, None where there is no such."""

    name: str
    base: Side | str | None
    head: Side | str | None

    @property
    def folder(self) -> str:
        return f"kernels/{self.name}"

    @property
    def sides(self) -> tuple[Side, Side] | None:
        """What can be compared: a new study beside one without variants."""
        if not isinstance(self.head, Side) or isinstance(self.base, str):
            return None
        return self.base or self.head.without_variants, self.head

    @property
    def alone(self) -> Compared:
        """What is told of a study that cannot be compared: once, and not of each variant."""
        base, head, name = self.base, self.head, self.name
        if head is None:
            one = Change(name, Move.GONE, Finding("commit.study_gone"))
        elif isinstance(head, str) and not isinstance(base, str):
            told = finding("commit.study_broken", text=head)
            one = Change(name, Move.BROKEN, told, cause=Cause.SOURCE, spot=_spot(head))
        else:
            why = base if isinstance(base, str) else ""
            told = finding("commit.study_unread", text=why)
            one = Change(name, Move.CANNOT_TELL, told, spot=_spot(why))
        return Compared(name, self.folder, (one,))


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

    def at(place: int, name: str) -> Side | str | None:
        if name not in known[place]:
            return None
        commit, workspace = commits[place], workspaces[place]
        try:
            return Side(commit, workspace, workspace.study(name))
        except WorkbenchError as error:
            return repository.worded(error.message, workspace.root, commit)

    return [Paired(n, at(0, n), at(1, n)) for n in ([wanted] if wanted else names)]


def changed_sources(base: Side, head: Side) -> list[str]:
    """Variants of both with other sources."""
    shared = [name for name in head.names if name in base.names]
    return [n for n in shared if base.prints.of_sources(n) != head.prints.of_sources(n)]


def plain_of(side: Side, name: str) -> str:
    """Of the sources without comments."""
    return plain_digest(side.study, side.study.variants[name])


def compile_sides(
    executor: Executor, pairs: Sequence[tuple[Side, Side]], arch: str, cubins: Path
) -> None:
    """What has other sources, and not only other comments, at both commits; and what is new."""
    wanted: list[tuple[Side, list[str]]] = []
    for base, head in pairs:
        changed = [n for n in changed_sources(base, head) if plain_of(base, n) != plain_of(head, n)]
        new = [name for name in head.names if name not in base.names]
        wanted += [(base, collectable(executor, base.study, changed))]
        wanted += [(head, collectable(executor, head.study, [*changed, *new]))]
    if any(names for _, names in wanted):
        with executor.reporter.progress() as hear:
            build_all([each for each in wanted if each[1]], arch, hear, cubins)


def compare(
    executor: Executor,
    base: Side,
    head: Side,
    options: GateOptions,
    tier: int,
    folder: Path,
    payer: Workspace,
) -> Compared:
    """All variants of a study. ``folder`` takes what is measured of it, ``payer`` is the workspace
    whose budget that is.
    """
    names = list(dict.fromkeys([*head.names, *base.names]))
    counted = [n for n in names if tier and recorded_anew(base, head, n)]
    sides = {n: tuple(s.at(n, counters=n in counted) for s in (base, head)) for n in names}
    open_ = [n for n, (old, new) in sides.items() if old and new and not is_same(old, new)]
    open_ = [n for n in open_ if not any(s.error for s in sides[n] if s)]
    open_ = collectable(executor, head.study, open_)
    together: Together | None = None
    if tier and open_ and executor.gpu is not None:
        together = measure_together(
            executor, base, head, open_, shape=options.shape, tier=tier, folder=folder, payer=payer
        )
    changes, changed = [], changed_sources(base, head)
    for name, (old, new) in sides.items():
        timed = None
        if together is not None and name in open_ and old and new:
            old, new = together.at(old, older(name)), together.at(new, name)
            timed = together.timed(name)
        change = judge_change(name, old, new, base.workspace.config, timed)
        if change.move == Move.SAME and name in changed:
            change = replace(change, is_stale=head.is_stale(name))
        elif change.move not in (Move.SAME, Move.GONE):
            both = together if name in open_ else None
            compared = old is not None and (both is not None or name in counted)
            spot = _gained(base, head, name, both) if compared else None
            error = new.error if new else ""
            change = replace(change, spot=spot or _told(head, error) or _beginning(head, change))
        changes.append(change)
    unchanged = frozenset(set(names) - set(changed))
    folder_of = head.study.folder.relative_to(head.workspace.root).as_posix()
    ruled = changed_rules(base.rules, head.rules) if base.names else ()
    return Compared(head.study.name, folder_of, (*ruled, *with_controls(changes, unchanged)))


def _told(head: Side, error: str) -> Spot | None:
    """The first line that the compiler complains of."""
    root = re.escape(virtual_name(head.study.name, ""))
    found = re.search(rf"{root}(?P<file>[^\n()]+)\((?P<line>\d+)\): error", error)
    return Spot(found["file"], int(found["line"]), "the compiler's first error") if found else None


def _beginning(head: Side, change: Change) -> Spot:
    """The line of the first kernel that is another, else of the first that there is."""
    variant = head.study.variants[change.variant]
    moved = [one.kernel for one in change.differences if one.kernel]
    texts = {
        path: readable_text(path)
        for path in source_files(head.study, variant)
        if path.suffix in CODE and path.suffix != ".py"
    }
    for kernel in [*moved, ""]:
        for path, text in texts.items():
            if line := kernel_line(text, kernel):
                return Spot(path.relative_to(head.study.folder).as_posix(), line, "the kernel")
    return Spot(variant.module.name, 1, "the variant")


def _gained(base: Side, head: Side, name: str, together: Together | None) -> Spot | None:
    """The line with the most added stall time, if the captures of both have lines."""
    if together is not None:
        known = [(together.evidence, older(name)), (together.evidence, name)]
    elif base.evidence and head.evidence:
        known = [(base.evidence, name), (head.evidence, name)]
    else:
        return None
    sides = [
        profiled(source_texts(e.study, e.study.variants[n]), Captures(e).of(n)) for e, n in known
    ]
    if (most := gained(source_diff(*sides))) is None:
        return None
    more, file, line = most
    own = virtual_name(head.study.name, "")
    return Spot(file.removeprefix(own), line, f"{more:+.3g} µs of stalls under ncu")


def _said(changes: Sequence[Change], commits: Sequence[Commit]) -> str:
    """The verdict in a line."""
    counts = {move: sum(change.move == move for change in changes) for move in Move}
    told = ", ".join(f"{count} {move}" for move, count in counts.items() if count)
    return f"{commits[0].short} → {commits[1].short}: {told or 'no variant'}"


def finish(changes: Sequence[Change]) -> int:
    """The exit code of the verdict."""
    if any(change.is_bad for change in changes):
        note("error: " + ", ".join(f"{c.variant} is {c.move}" for c in changes if c.is_bad))
        note("hint: `workbench gate --wide` shows all that moved; --sarif FILE names the lines")
        return GateFailed.exit_code
    open_ = [change for change in changes if change.move == Move.CANNOT_TELL]
    if any(change.cause == Cause.METHOD for change in open_):
        note("hint: the rules differ: read that part of the change, no figure can judge it")
    elif open_:
        note("hint: measuring tells more: the same command on a machine with a GPU and ncu")
    if open_:
        return CannotTell.exit_code
    return 0


def tier_of(options: GateOptions, executor: Executor) -> int:
    """What is asked for, else all that this machine can. Raises EnvironmentLacks."""
    if options.tier == 2 and executor.gpu is None:
        raise machine.why_not_measuring()
    if options.tier is not None:
        return options.tier
    return 2 if executor.gpu is not None else 1


def opened(options: GateOptions, workspace: Workspace) -> tuple[Repository, list[Commit]]:
    """The repository of the workspace and the two commits. Raises UsageError."""
    require_arch(options.arch)
    repository = repository_of(workspace)
    commits = [repository.commit(said) for said in (options.base, options.head)]
    if options.head == "HEAD" and repository.is_dirty:
        note("there are changes that are in no commit: they are not looked at")
    return repository, commits


def run(options: GateOptions) -> int:
    here = executor("gate", options.on)
    workspace = find_workspace(options.project)
    repository, commits = opened(options, workspace)
    tier = tier_of(options, here)
    with ExitStack() as stack:
        workspaces = stack.enter_context(repository.checked_out(commits))
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="workbench-")))
        known = paired(repository, commits, workspaces, options.study)
        pairs = [each.sides for each in known if each.sides]
        cubins = (options.cache or scratch / "cubins").resolve()
        cubins.mkdir(parents=True, exist_ok=True)
        compile_sides(here, pairs, options.arch, cubins)
        compared = [
            compare(here, *each.sides, options, tier, scratch / each.name, workspace)
            if each.sides
            else each.alone
            for each in known
        ]
    changes = [change for each in compared for change in each.changes]
    where = repository.inside.as_posix()
    inside = {each.study: f"{where}/{each.folder}".removeprefix("./") for each in compared}
    told = {each.study: each.changes for each in compared}
    studies = [{"study": s, "folder": inside[s], "changes": its} for s, its in told.items()]
    ends = {"base": commits[0].sha, "head": commits[1].sha}
    tell(
        options,
        lambda: {**ends, "tier": tier, "studies": studies},
        lambda: document.gate(_said(changes, commits), told, wide=options.wide),
    )
    if options.junit:
        write_bytes(options.junit, junit(told, inside).encode())
    if options.sarif:
        write_bytes(options.sarif, sarif(told, inside).encode())
    return finish(changes)
