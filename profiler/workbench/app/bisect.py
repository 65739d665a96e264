"""The commit in which a variant became wrong, or slower."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from workbench.app.executor import Executor, Task
from workbench.app.sides import (
    Side,
    at_own_shape,
    build_all,
    measure_together,
    recorded_anew,
    side_of,
    wrong_in,
)
from workbench.errors import (
    CannotTell,
    EnvironmentLacks,
    GateFailed,
    UsageError,
    WorkbenchError,
    unknown,
)
from workbench.evidence.layout import EvidenceFolder, evidence_folders
from workbench.judge.commits import first_bad, judge_change
from workbench.judge.comparison import is_same
from workbench.render.document.sentences import sentence
from workbench.run.plan import Plan
from workbench.run.repository import Commit, Repository, Worktrees, older, repository_of
from workbench.study.workspace import Workspace
from workbench.words import Move, shown

WRONG, SLOW, EITHER = "wrong", "slow", "either"
WORDS = {True: "bad", False: "good", None: "not known"}
ANSWERS = {Move.SLOWER: True, Move.SAME: False, Move.FASTER: False}


@dataclass(frozen=True)
class Sought:
    """The variant that is looked for, where it is timed, and what it is compiled for."""

    variant: str
    study: str | None
    shape: str | None
    arch: str


@dataclass(eq=False)
class History:
    """The commits of a range at which a variant's sources changed, the good end first.

    Answers are kept by what runs there: commits with the same machine code, launched by the same
    code, are asked once. ``tests`` counts what was asked, ``same`` what needed no asking.
    """

    executor: Executor
    workspace: Workspace
    trees: Worktrees
    sought: Sought
    commits: list[Commit]
    scratch: Path
    tests: int = 0
    same: int = 0
    known: list[tuple[Side, bool | None]] = field(default_factory=list)

    @contextmanager
    def at(self, commit: Commit) -> Iterator[Side]:
        """The study as it was there."""
        with self.trees.at(commit) as workspace:
            yield side_of(commit, workspace, self.sought.study, [self.sought.variant])

    def answer(self, place: int, ask: Callable[[Side], bool | None]) -> bool | None:
        """What ``ask`` says of a commit; None also where there is no such study or variant."""
        commit, name = self.commits[place], self.sought.variant

        def note(text: str) -> None:
            self.executor.note(f"{commit.short} {commit.subject}: {text}")

        try:
            with self.at(commit) as side:
                if name not in side.names:
                    note(f"there is no {name}")
                    return None
                same = self.same_as(side)
                if same is not None:
                    self.same += 1
                    note(f"runs what {same[0].commit.short} does")
                    return same[1]
                if side.facts is not None and side.facts.error:
                    note(f"{name} does not compile")
                    return None
                self.tests += 1
                found = ask(side)
                self.known.append((side, found))
        except (EnvironmentLacks, GateFailed):
            raise  # nothing can be measured, or the budget is spent
        except WorkbenchError as error:
            note(error.message)
            return None
        note(WORDS[found])
        return found

    def same_as(self, side: Side) -> tuple[Side, bool | None] | None:
        """What is known of a commit that runs the same on the same inputs; compiled only where the
        sources differ.
        """
        side.facts = side.at(self.sought.variant, counters=False)
        for is_compiled in (False, True):
            if is_compiled:
                self.compile(side)
            for known in self.known:
                one, other = known[0].facts, side.facts
                if not one or not other or one.error or other.error:
                    continue
                if one.method == other.method and is_same(one, other):
                    return known
        return None

    def compile(self, side: Side) -> None:
        name = self.sought.variant
        with self.executor.reporter.progress() as hear:
            build_all([(side, [name])], self.sought.arch, hear, self.scratch / "cubins")
        side.facts = side.at(name, counters=False)


def kept(executor: Executor, trees: Worktrees, bad: Commit, sought: Sought) -> Commit:
    """The newest commit that recorded evidence of the variant, by which it is correct as it was
    there. Raises UsageError where there is none before ``bad``.
    """
    name, repository = sought.variant, trees.repository
    with trees.at(bad) as workspace:
        study = workspace.study(sought.study).name
        folders = evidence_folders(workspace.ablations, study)
        files = [path for folder in folders for path in folder.of_variant(name)]
        top = workspace.root.resolve()
        paths = [repository.inside / path.resolve().relative_to(top) for path in files]
    for commit in repository.touching(paths, bad.sha) if paths else []:
        with trees.at(commit) as workspace:
            side = side_of(commit, workspace, sought.study, [name])
            held = side.evidence.get(name)
            if held and side.study.default_shape in held.checks and not wrong_in(held):
                if commit.sha == bad.sha:
                    break
                executor.note(f"from {commit.short} {commit.subject}: its evidence says correct")
                return commit
    raise UsageError(
        f"no commit before {bad.said} holds evidence that {name} is correct",
        hint=f"name one: `workbench bisect {name} GOOD`",
    )


def changed(repository: Repository, commits: Sequence[Commit]) -> list[Commit]:
    """Both ends, and between them the commits that touch the workspace's kernels."""
    good, bad = commits[0], commits[-1]
    since = f"{good.sha}..{bad.sha}"
    touched = {c.sha for c in repository.touching([repository.inside / "kernels"], since)}
    return [c for c in commits if c in (good, bad) or c.sha in touched]


def is_wrong(history: History, side: Side) -> bool | None:
    """None where that is not known: a note says why. Raises Interrupted."""
    name, here = history.sought.variant, history.executor
    known = side.evidence.get(name)
    if known is not None and side.study.default_shape in known.checks:
        return bool(wrong_in(known))
    why = "no check of these sources is recorded"
    if here.gpu is not None:
        folder = EvidenceFolder(history.scratch / side.commit.sha / "checked" / here.gpu.slug)
        plan = Plan(side.study.default_shape, checked=(name,))
        task = Task(history.workspace, side.study, side.workspace.config, folder, plan)
        here.measure([task])
        known = at_own_shape(side.study, folder, [name]).variants[name]
        build = known.build
        if build is not None and build.error:  # neither right nor wrong
            why = f"does not compile: {build.error.splitlines()[0]}"
        elif known.checks:
            return bool(wrong_in(known))
        else:
            why = "was not checked"
    here.note(f"{side.commit.short}: {why}")
    return None


def is_slow(history: History, good: Side, side: Side) -> bool | None:
    """Beside the good end: timed in the same sessions; without a GPU by what the compiler makes of
    both, and by captures that both commits hold.
    """
    name, measuring = history.sought.variant, history.executor.gpu is not None
    counted = not measuring and recorded_anew(good, side, name)
    old, new = (one.at(name, counters=counted) for one in (good, side))
    timed = None
    if measuring and old is not None and new is not None:
        both = measure_together(
            history.executor,
            good,
            side,
            [name],
            shape=history.sought.shape,
            tier=2,
            folder=history.scratch / side.commit.sha / "timed",
            payer=history.workspace,
        )
        old, new = both.at(old, older(name)), both.at(new, name)
        timed = both.timed(name)
    change = judge_change(name, old, new, good.workspace.config, timed)
    history.executor.note(f"{side.commit.short}: {change.verdict}: {sentence(change.why)}")
    return ANSWERS.get(change.verdict)


def find(history: History, ask: Callable[[Side], bool | None]) -> tuple[int, int] | None:
    """None where the last commit is no worse. Raises CannotTell where an end cannot be tested."""
    last = len(history.commits) - 1
    for place, should in ((0, False), (last, True)):
        text = history.answer(place, ask)
        commit = history.commits[place]
        if text is None:
            raise CannotTell(
                f"{commit.said} cannot be tested: the search has no "
                f"{'bad' if should else 'good'} end",
                hint="name another commit, or measure where there is a GPU and ncu",
            )
        if text and not should:
            raise GateFailed(
                f"{commit.said} is bad already", hint="name an older commit as the good one"
            )
        if should and not text:
            return None
    return first_bad(len(history.commits), lambda place: history.answer(place, ask))


@dataclass(frozen=True)
class Bisected:
    """``what`` the variant became after ``last_good``: ``wrong`` or ``slow``. ``not_tested`` are
    the commits before ``first_bad`` that could not be tested; of all ``commits``, ``touching``
    touch kernels.
    """

    variant: str
    what: str
    first_bad: Commit
    last_good: Commit
    not_tested: tuple[Commit, ...] = field(repr=False)
    commits: int
    touching: int = field(repr=False)
    tested: int
    same: int

    @property
    @shown
    def untested(self) -> list[str]:
        """In full."""
        return [commit.sha for commit in self.not_tested]


def bisect(
    executor: Executor,
    workspace: Workspace,
    sought: Sought,
    good: str,
    bad: str,
    what: str,
) -> Bisected:
    """``good`` is by default the commit of the last evidence by which it is correct. Raises
    UsageError for unknown names, GateFailed where nothing became worse, and CannotTell.
    """
    if what not in (WRONG, SLOW, EITHER):
        raise unknown("question", what, (WRONG, SLOW, EITHER))
    repository = repository_of(workspace)
    last = repository.commit(bad)
    with (
        repository.worktrees() as trees,
        tempfile.TemporaryDirectory(prefix="workbench-") as folder,
    ):
        first = repository.commit(good) if good else kept(executor, trees, last, sought)
        every = repository.between(first, last)
        (Path(folder) / "cubins").mkdir()
        commits = changed(repository, every)
        history = History(executor, workspace, trees, sought, commits, Path(folder))
        with history.at(last) as side:
            if sought.variant not in side.names:
                raise unknown("variant", sought.variant, side.names)
        for each in (WRONG, SLOW) if what == EITHER else (what,):
            history.known = []
            found = search(history, each)
            if found is not None:
                return Bisected(
                    variant=sought.variant,
                    what=each,
                    first_bad=commits[found[1]],
                    last_good=commits[found[0]],
                    not_tested=tuple(commits[found[0] + 1 : found[1]]),
                    commits=len(every),
                    touching=len(commits),
                    tested=history.tests,
                    same=history.same,
                )
    raise GateFailed(
        f"{sought.variant} is not {'wrong or slower' if what == EITHER else what} at {bad}",
        hint="`workbench gate` compares the two in full",
    )


def search(history: History, what: str) -> tuple[int, int] | None:
    if what == WRONG:
        return find(history, partial(is_wrong, history))
    with history.at(history.commits[0]) as start:
        history.compile(start)
        history.known = [(start, False)]
        return find(history, partial(is_slow, history, start))
