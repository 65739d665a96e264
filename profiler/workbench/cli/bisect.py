"""``workbench bisect``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from workbench.app.executor import Executor, Task
from workbench.app.sides import (
    Side,
    build_all,
    measure_together,
    recorded_anew,
    side_of,
    wrong_in,
)
from workbench.cli.options import BisectOptions
from workbench.cli.printing import say, show_json
from workbench.cli.streams import executor, note
from workbench.errors import (
    CannotTell,
    EnvironmentLacks,
    GateFailed,
    UsageError,
    WorkbenchError,
    unknown,
)
from workbench.evidence.layout import EvidenceFolder, evidence_folders
from workbench.judge.commits import Found, first_bad, judge_change
from workbench.judge.differences import AtCommit, is_same
from workbench.render.document.findings import sentence
from workbench.run.commits import Commit, Repository, older, repository_of
from workbench.run.plan import Plan
from workbench.study.workspace import Workspace, find_workspace
from workbench.words import Move

WRONG, SLOW, EITHER = "wrong", "slow", "either"
ANSWERS = {Move.SLOWER: True, Move.SAME: False, Move.FASTER: False}


@dataclass(eq=False)
class History:
    """The commits of a range at which a variant's sources changed, the good end first.

    Answers are kept by what runs there: commits with the same machine code, launched by the same
    code, are asked once. ``tests`` counts what was asked, ``same`` what needed no asking.
    """

    executor: Executor
    workspace: Workspace
    repository: Repository
    options: BisectOptions
    commits: list[Commit]
    scratch: Path
    tests: int = 0
    same: int = 0
    known: list[tuple[Side, bool | None]] = field(default_factory=list)

    @contextmanager
    def at(self, commit: Commit) -> Iterator[Side]:
        """The study as it was there."""
        with self.repository.checked_out([commit]) as (workspace,):
            yield side_of(commit, workspace, self.options.study, [self.options.variant])

    def answer(self, place: int, ask: Callable[[Side], bool | None]) -> bool | None:
        """What ``ask`` says of a commit; None also where there is no such study or variant."""
        commit, name = self.commits[place], self.options.variant
        try:
            with self.at(commit) as side:
                if name not in side.names:
                    note(f"{commit.short} {commit.subject}: there is no {name}")
                    return None
                same = self.same_as(side)
                if same is not None:
                    self.same += 1
                    note(f"{commit.short} {commit.subject}: runs what {same[0].commit.short} does")
                    return same[1]
                if side.facts is not None and side.facts.error:
                    note(f"{commit.short} {commit.subject}: {name} does not compile")
                    return None
                self.tests += 1
                told = ask(side)
                self.known.append((side, told))
        except (EnvironmentLacks, GateFailed):
            raise  # nothing can be measured, or the budget is spent
        except WorkbenchError as error:
            note(f"{commit.short} {commit.subject}: {error.message}")
            return None
        note(f"{commit.short} {commit.subject}: {WORDS[told]}")
        return told

    def same_as(self, side: Side) -> tuple[Side, bool | None] | None:
        """What is known of a commit that runs the same; compiled only where the sources differ."""
        side.facts = side.at(self.options.variant, counters=False)
        for is_compiled in (False, True):
            if is_compiled:
                self.compile(side)
            for known in self.known:
                if runs_the_same(known[0].facts, side.facts):
                    return known
        return None

    def compile(self, side: Side) -> None:
        name = self.options.variant
        with self.executor.reporter.progress() as hear:
            build_all([(side, [name])], self.options.arch, hear, self.scratch / "cubins")
        side.facts = side.at(name, counters=False)


def kept(repository: Repository, bad: Commit, options: BisectOptions) -> Commit:
    """The newest commit that recorded evidence of the variant, by which it is correct as it was
    there. Raises UsageError where there is none before ``bad``.
    """
    name = options.variant
    with repository.checked_out([bad]) as (workspace,):
        study = workspace.study(options.study).name
        folders = evidence_folders(workspace.ablations, study)
        files = [path for folder in folders for path in folder.of_variant(name)]
        top = workspace.root.resolve()
        paths = [repository.inside / path.resolve().relative_to(top) for path in files]
    for commit in repository.touching(paths, bad.sha) if paths else []:
        with repository.checked_out([commit]) as (workspace,):
            side = side_of(commit, workspace, options.study, [name])
            known = (
                side.evidence.check(name).current if name in side.names and side.evidence else None
            )
            if known is not None and not wrong_in(side.evidence, name):
                if commit.sha == bad.sha:
                    break
                note(f"from {commit.short} {commit.subject}: its evidence says correct")
                return commit
    raise UsageError(
        f"no commit before {bad.said} holds evidence that {name} is correct",
        hint=f"name one: `workbench bisect {name} GOOD`",
    )


def runs_the_same(one: AtCommit | None, other: AtCommit | None) -> bool:
    """On the same inputs, too."""
    if one is None or other is None or one.method != other.method:
        return False
    return not (one.error or other.error) and is_same(one, other)


WORDS = {True: "bad", False: "good", None: "cannot be told"}


def changed(
    repository: Repository, commits: Sequence[Commit], options: BisectOptions
) -> list[Commit]:
    """Both ends, and between them the commits that touch the workspace's kernels."""
    good, bad = commits[0], commits[-1]
    kernels = (repository.inside / "kernels").as_posix()
    told = repository.git(
        "rev-list", "--first-parent", f"{good.sha}..{bad.sha}", "--", kernels
    ).split()
    return [c for c in commits if c in (good, bad) or c.sha in told]


def wrong(history: History) -> Callable[[Side], bool | None]:
    def ask(side: Side) -> bool | None:
        correct, why = correctness(history, side)
        if correct is None:
            note(f"{side.commit.short}: {why}")
            return None
        return not correct

    return ask


def slow(history: History, good: Side) -> Callable[[Side], bool | None]:
    """Against the good end: timed in the same sessions; without a GPU by what the compiler makes of
    both, and by captures that both commits hold.
    """
    name = history.options.variant

    def ask(side: Side) -> bool | None:
        config, measuring = good.workspace.config, history.executor.gpu is not None
        counted = not measuring and recorded_anew(good, side, name)
        old, new = (one.at(name, counters=counted) for one in (good, side))
        timed = None
        if measuring and old is not None and new is not None:
            both = measure_together(
                history.executor,
                good,
                side,
                [name],
                shape=history.options.shape,
                tier=2,
                folder=history.scratch / side.commit.sha / "timed",
                payer=history.workspace,
            )
            old, new = both.at(old, older(name)), both.at(new, name)
            timed = both.timed(name)
        change = judge_change(name, old, new, config, timed)
        note(f"{side.commit.short}: {change.move}: {sentence(change.why)}")
        return ANSWERS.get(change.move)

    return ask


def find(history: History, ask: Callable[[Side], bool | None]) -> Found | None:
    """None where the last commit is no worse. Raises CannotTell where an end cannot be told."""
    last = len(history.commits) - 1
    for place, should in ((0, False), (last, True)):
        told = history.answer(place, ask)
        commit = history.commits[place]
        if told is None:
            raise CannotTell(
                f"of {commit.said} nothing can be told: the search has no "
                f"{'bad' if should else 'good'} end",
                hint="name another commit, or measure where there is a GPU and ncu",
            )
        if told and not should:
            raise GateFailed(
                f"{commit.said} is bad already", hint="name an older commit as the good one"
            )
        if should and not told:
            return None
    return first_bad(len(history.commits), lambda place: history.answer(place, ask))


def run(options: BisectOptions) -> None:
    if options.what not in (WRONG, SLOW, EITHER):
        raise unknown("question", options.what, (WRONG, SLOW, EITHER))
    workspace = find_workspace(options.project)
    repository = repository_of(workspace)
    bad = repository.commit(options.bad)
    good = repository.commit(options.good) if options.good else kept(repository, bad, options)
    every = repository.between(good, bad)
    here = executor("bisect", options.on)
    with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
        (Path(folder) / "cubins").mkdir()
        commits = changed(repository, every, options)
        history = History(here, workspace, repository, options, commits, Path(folder))
        with history.at(bad) as side:
            if options.variant not in side.names:
                raise unknown("variant", options.variant, side.names)
        for what in (WRONG, SLOW) if options.what == EITHER else (options.what,):
            history.known = []
            found = search(history, what)
            if found is not None:
                return tell(history, what, found, len(every))
    what = "wrong or slower" if options.what == EITHER else options.what
    raise GateFailed(
        f"{options.variant} is not {what} at {options.bad}",
        hint="`workbench gate` compares the two in full",
    )


def search(history: History, what: str) -> Found | None:
    if what == WRONG:
        return find(history, wrong(history))
    with history.at(history.commits[0]) as start:
        history.compile(start)
        history.known = [(start, False)]
        return find(history, slow(history, start))


def tell(history: History, what: str, found: Found, number: int) -> None:
    """The result on stdout. Raises CannotTell where commits before it could not be tested."""
    commits, options = history.commits, history.options
    last, first = commits[found.last_good], commits[found.first_bad]
    untested = [commits[place] for place in found.untested]
    verb = "became wrong" if what == WRONG else "became slower"
    if options.json:
        show_json(
            {
                "variant": options.variant,
                "what": what,
                "first_bad": {"commit": first.sha, "subject": first.subject},
                "last_good": {"commit": last.sha, "subject": last.subject},
                "untested": [commit.sha for commit in untested],
                "commits": number,
                "tested": history.tests,
                "same": history.same,
            }
        )
    else:
        one = f"in {first.short} {first.subject}"
        say(
            f"{options.variant} {verb} {'after the last known good' if untested else one}",
            *([f"first known bad: {first.short} {first.subject}"] if untested else []),
            f"last known good: {last.short} {last.subject}",
            f"{number} commits: {len(commits)} touch kernels, {history.tests} were tested, "
            f"{history.same} run what another does",
        )
    if untested:
        raise CannotTell(
            f"{options.variant} {verb} in {first.short} or in a commit before it that could not be "
            f"tested: {', '.join(c.short for c in untested)}",
            hint="the lines above say why not; `workbench gate` compares two commits in full",
        )


def correctness(history: History, side: Side) -> tuple[bool | None, str]:
    """Whether the variant is correct, None where it cannot be told; and what is wrong, or why not.
    Raises Interrupted.
    """
    name = history.options.variant
    if side.evidence is not None and side.evidence.check(name).current is not None:
        why = wrong_in(side.evidence, name)
        return not why, why
    if (gpu := history.executor.gpu) is None:
        return None, "no check of these sources is on record"
    folder = EvidenceFolder(history.scratch / side.commit.sha / "checked" / gpu.slug)
    plan = Plan(side.study.default_shape, checked=(name,))
    task = Task(history.workspace, side.study, side.workspace.config, folder, plan)
    history.executor.measure([task])
    build = task.evidence.build(name).current
    if build is not None and build.error:  # neither right nor wrong
        return None, f"does not compile: {build.error.splitlines()[0]}"
    if not any(task.evidence.check(name, shape).current for shape in side.study.shapes):
        return None, "was not checked"
    why = wrong_in(task.evidence, name)
    return not why, why
