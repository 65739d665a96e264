"""All variants of two commits compared: same, faster, slower, or cannot tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from workbench.app.executor import Executor
from workbench.app.kernel_code import code_of_builds
from workbench.app.measure import collectable
from workbench.app.sides import (
    Measuring,
    Side,
    Together,
    build_all,
    measure_together,
    recorded_anew,
    side_of,
    toolchains_of,
)
from workbench.app.target import require_arch
from workbench.children import temporary_folder
from workbench.errors import EnvironmentLacks, UsageError, WorkbenchError, unknown
from workbench.judge.commits import (
    AtCommit,
    VariantChange,
    changed_packages,
    changed_rules,
    is_same,
    judge_change,
    with_controls,
)
from workbench.judge.findings import finding
from workbench.run import machine
from workbench.run.protocol import Built
from workbench.run.repository import Commit, Repository, repository_of
from workbench.run.toolchains import Toolchain, named_pythons, toolchain_of
from workbench.study.files import resolved
from workbench.study.front_ends import LIBRARY, front_ends_of
from workbench.study.sources import plain_digest, source_files
from workbench.study.workspace import Workspace
from workbench.words import Cause, Move, shown


@dataclass(frozen=True)
class StudyChanges:
    study: str
    changes: tuple[VariantChange, ...]


def unpaired(name: str, base: Side | str | None, head: Side | str | None) -> StudyChanges:
    """Return what is reported of a study that cannot be compared: once, and not of each variant."""
    if head is None:
        gone = finding("commit.study_gone", "its study is not there any more")
        change = VariantChange(name, Move.GONE, gone)
    elif isinstance(head, str) and not isinstance(base, str):
        broken = finding("commit.study_broken", head, text=head)
        change = VariantChange(name, Move.BROKEN, broken, cause=Cause.SOURCE)
    else:
        why = base if isinstance(base, str) else ""
        message = f"could not be read before: {why or 'not collected'}"
        broken = finding("commit.study_unread", message, text=why)
        change = VariantChange(name, Move.CANNOT_TELL, broken)
    return StudyChanges(name, (change,))


def paired(
    repository: Repository | None,
    commits: Sequence[Commit],
    workspaces: Sequence[Workspace],
    asked: GateRequest,
    toolchains: Sequence[Toolchain | None] = (None, None),
) -> Iterator[tuple[Side, Side] | StudyChanges]:
    """Pair all studies of both commits, those of the newer first, or the one that is asked for; or
    say why one cannot be compared. ``toolchains`` are of environments that stand for commits.
    Raises UsageError where the study, or any, is at neither.
    """
    wanted = asked.study
    older, newer = by_commit = [workspace.studies() for workspace in workspaces]
    names = list(dict.fromkeys([*newer, *older]))
    if wanted and wanted not in names:
        raise unknown("study", wanted, names)
    if not names:
        raise UsageError(
            f"neither {commits[0].said} nor {commits[1].said} has a study",
            hint="a study is a folder kernels/NAME with a study.py",
        )

    def at(place: int, name: str) -> Side | str | None:
        """None where there is no such study, and a text why its files cannot be read."""
        if name not in by_commit[place]:
            return None
        commit, workspace = commits[place], workspaces[place]
        try:
            return side_of(commit, workspace, name, asked.variant, toolchains[place])
        except WorkbenchError as error:
            if asked.variant or repository is None:
                raise
            return repository.worded(error.message, workspace.root, commit)

    for name in [wanted] if wanted else names:
        base, head = at(0, name), at(1, name)
        if isinstance(head, Side) and not isinstance(base, str):
            bare = replace(head.study, variants={})  # a new study is compared with no variants
            yield base or Side(head.commit, head.workspace, bare), head
        else:
            yield unpaired(name, base, head)


def changed_sources(base: Side, head: Side) -> list[str]:
    shared = [name for name in head.compared if name in base.names]
    return [n for n in shared if base.prints.of_sources(n) != head.prints.of_sources(n)]


def plain_of(side: Side, name: str) -> str:
    return plain_digest(side.study, side.study.variants[name])


def compile_sides(
    executor: Executor, pairs: Sequence[tuple[Side, Side]], arch: str, cubins: Path
) -> None:
    """Compile what has other sources, and not only other comments, at both commits, or is new; for
    two environments everything.
    """
    wanted: list[tuple[Side, list[str]]] = []
    for base, head in pairs:
        if head.toolchain:
            names = collectable(executor, head.study, head.compared, toolchains_of(base, head))
            wanted += [(base, names), (head, names)]
            continue
        changed = [n for n in changed_sources(base, head) if plain_of(base, n) != plain_of(head, n)]
        new = [name for name in head.compared if name not in base.names]
        wanted += [(base, collectable(executor, base.study, changed))]
        wanted += [(head, collectable(executor, head.study, [*changed, *new]))]
    if any(names for _, names in wanted):
        with executor.reporter.progress() as hear:
            build_all([each for each in wanted if each[1]], arch, hear, cubins)


def is_control(head: Side, name: str, before: AtCommit, after: AtCommit) -> bool:
    """Whether two environments run the same: a reference of torch's own kernels does, too."""
    is_torchs = front_ends_of(source_files(head.study, head.study.variants[name])) == (LIBRARY,)
    is_reference = name == head.study.ladder.primary_reference and is_torchs
    libraries = changed_packages(before, after, Cause.LIBRARY)
    return is_same(before, after) or (is_reference and not libraries)


def compare(
    executor: Executor,
    base: Side,
    head: Side,
    asked: GateRequest,
    folder: Path,
) -> StudyChanges:
    """All variants of a study. ``folder`` takes what is measured of it."""
    names = list(dict.fromkeys([*head.compared, *base.compared]))
    counted = [n for n in names if asked.tier and recorded_anew(base, head, n)]
    sides = {n: tuple(s.at(n, counters=n in counted) for s in (base, head)) for n in names}
    open_ = [n for n, (old, new) in sides.items() if old and new and not is_same(old, new)]
    open_ = [n for n in open_ if not any(s.error for s in sides[n] if s)]
    open_ = collectable(executor, head.study, open_, toolchains_of(base, head))
    together: Together | None = None
    if asked.tier and open_ and executor.gpu is not None:
        same = [
            n for n, (old, new) in sides.items() if old and new and is_control(head, n, old, new)
        ]
        plan = Measuring(open_, asked.shape, times=asked.tier > 1, same=same)
        together = measure_together(executor, base, head, plan, folder)
    changes, changed = [], changed_sources(base, head)
    for name, (old, new) in sides.items():
        timed = None
        if together is not None and name in open_ and old and new:
            old, new = together.both((old, new), name)
            timed = together.timed(name)
        change = judge_change(name, old, new, base.workspace.config, timed)
        if change.verdict == Move.SAME and name in changed:
            change = replace(change, stale=head.is_stale(name))
        changes.append(change)
    unchanged = frozenset(() if head.toolchain else set(names) - set(changed))
    ruled = changed_rules(base.rules, head.rules) if base.names and not head.only else ()
    return StudyChanges(head.study.name, (*ruled, *with_controls(changes, unchanged)))


def with_machine_code(
    executor: Executor, change: VariantChange, sides: tuple[Side, Side], cubins: Path
) -> VariantChange:
    """Add a finding for each kernel whose machine code changed, where nvdisasm is installed."""
    old, new = (side.built.get(change.variant) for side in sides)
    if not (isinstance(old, Built) and isinstance(new, Built)) or codes(old) == codes(new):
        return change
    try:
        kernels = code_of_builds(old, new, cubins, "").kernels
    except (EnvironmentLacks, UsageError) as error:  # no nvdisasm, or no room for binaries
        executor.note_once(f"{error.message}; {error.hint}")
        return change
    texts = (f"{kernel.kernel}: {kernel.sentence()}" for kernel in kernels)
    became = (finding("commit.machine_code", text, text=text) for text in texts)
    return replace(change, also=(*change.also, *became))


def codes(built: Built) -> list[str]:
    return sorted(kernel.code for kernel in built.kernels)


@dataclass(frozen=True)
class Gated:
    """All variants of two commits or environments, study by study; ``tier`` is how far they were
    compared.
    """

    older: Commit = field(repr=False)
    newer: Commit = field(repr=False)
    tier: int
    studies: tuple[StudyChanges, ...]

    @property
    @shown
    def base(self) -> str:
        """The hash of the older commit, in full, or the older environment's name."""
        return self.older.sha

    @property
    @shown
    def head(self) -> str:
        """The hash of the newer commit, in full, or the newer environment's name."""
        return self.newer.sha

    @property
    def changes(self) -> list[VariantChange]:
        return [change for each in self.studies for change in each.changes]


@dataclass(frozen=True)
class GateRequest:
    """What is compared and how far: all studies or one, or one ``variant`` of it, at most to
    ``tier``, by default as far as this machine can. ``cache`` is a folder that keeps what is
    compiled.
    """

    arch: str
    tier: int | None = None
    cache: Path | None = None
    study: str | None = None
    variant: str | None = None
    shape: str | None = None


def gate(
    executor: Executor,
    workspace: Workspace,
    commits: Sequence[str],
    asked: GateRequest,
    environments: Sequence[str] = (),
) -> Gated:
    """Compare two commits, or the files of a workspace in two ``environments``, each
    ``NAME=PYTHON``. Raises UsageError for unknown names, and EnvironmentLacks where tier 2 cannot
    be measured or an environment lacks a package.
    """
    require_arch(asked.arch)
    if environments and executor.at_once:
        raise UsageError("--env compares two environments of this machine", hint="leave --on out")
    if asked.tier == 2 and executor.gpu is None:
        raise machine.why_not_measuring()
    tier = asked.tier if asked.tier is not None else 1 + (executor.gpu is not None)
    study = workspace.study(asked.study).name if asked.variant else asked.study
    asked = replace(asked, tier=tier, study=study)
    with ExitStack() as stack:
        scratch = stack.enter_context(temporary_folder())
        cubins = resolved(asked.cache or scratch / "cubins")
        toolchains = [
            toolchain_of(name, python, scratch / f"links-{name}", cubins / name)
            for name, python in named_pythons(environments).items()
        ]
        if toolchains:
            sides = [Commit(each.name, each.name) for each in toolchains]
            studies = [*paired(None, sides, [workspace, workspace], asked, toolchains)]
        else:
            repository = repository_of(workspace)
            sides = [repository.commit(said) for said in commits]
            if commits[1] == "HEAD" and repository.is_dirty:
                executor.note("there are changes that are in no commit: they are not looked at")
            trees = stack.enter_context(repository.worktrees())
            workspaces = [stack.enter_context(repository.workspace_at(c, trees)) for c in sides]
            studies = [*paired(repository, sides, workspaces, asked)]
        cubins.mkdir(parents=True, exist_ok=True)
        pairs = [each for each in studies if not isinstance(each, StudyChanges)]
        compile_sides(executor, pairs, asked.arch, cubins)
        compared = []
        for each in studies:
            if not isinstance(each, StudyChanges):
                judged = compare(executor, *each, asked, scratch / each[1].study.name)
                told = (with_machine_code(executor, c, each, cubins) for c in judged.changes)
                each = replace(judged, changes=tuple(told))
            compared.append(each)
    return Gated(sides[0], sides[1], tier, tuple(compared))
