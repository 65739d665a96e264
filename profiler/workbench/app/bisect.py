"""``git bisect`` over the answers of ``gate``: when did a variant become slower, or break?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from workbench.app.executor import Executor
from workbench.app.gate import Gated, gate
from workbench.children import temporary_folder
from workbench.errors import CannotTell, EnvironmentLacks, GateFailed, WorkbenchError
from workbench.judge.findings import sentence
from workbench.run.repository import Commit, repository_of
from workbench.study.workspace import Workspace
from workbench.words import Move, shown

ANSWERS = {Move.SLOWER: "bad", Move.BROKEN: "bad", Move.SAME: "good", Move.FASTER: "good"}


@dataclass(frozen=True)
class Bisected:
    """``first_bad`` is the first commit known to be bad. ``skipped`` are commits before it that
    could not be tested: it may be any of them.
    """

    variant: str
    first_bad: Commit
    skipped: tuple[Commit, ...] = field(repr=False)
    tested: int

    @property
    @shown
    def untested(self) -> list[str]:
        """The commits that could not be tested, in full."""
        return [commit.sha for commit in self.skipped]


def bisect(
    executor: Executor,
    workspace: Workspace,
    variant: str,
    good: str,
    bad: str,
    *,
    arch: str,
    study: str | None = None,
    shape: str | None = None,
) -> Bisected:
    """Every commit is compared with ``good``. Raises UsageError for unknown names, GateFailed where
    ``bad`` is not worse, and CannotTell where it cannot be tested.
    """
    repository = repository_of(workspace)
    first, last = repository.commit(good), repository.commit(bad)
    answers: dict[str, str] = {}
    with temporary_folder() as folder:
        compare = partial(
            gate,
            executor,
            workspace,
            first.sha,
            arch=arch,
            cache=folder / "cubins",
            study=workspace.study(study).name,
            shape=shape,
            variant=variant,
        )
        compare(first.sha)  # raises where its study has no such variant

        def ask(commit: Commit) -> str:
            answers[commit.sha] = answer = _answer(executor, commit, compare)
            return answer

        if (answer := ask(last)) == "skip":
            raise CannotTell(
                f"{last.said} cannot be tested: the search has no bad end",
                hint="name another commit, or measure where there is a GPU and ncu",
            )
        if answer == "good":
            raise GateFailed(
                f"{variant} is neither slower nor broken at {last.said}",
                hint="`workbench gate` compares the two in full",
            )
        candidates = repository.bisect(first, last, ask)
    first_bad, *skipped = sorted(candidates, key=lambda commit: answers.get(commit.sha, "skip"))
    return Bisected(variant, first_bad, tuple(skipped), tested=len(answers))


def _answer(executor: Executor, commit: Commit, compare: Callable[[str], Gated]) -> str:
    """Return what ``git bisect`` calls a commit."""
    try:
        (change,) = compare(commit.sha).changes
        answer = ANSWERS.get(change.verdict, "skip")
        text = f"{change.verdict}: {sentence(change.why)}"
    except EnvironmentLacks:
        raise
    except WorkbenchError as error:  # such as a commit without that variant
        answer, text = "skip", error.message
    executor.note(f"{commit.short} {commit.subject}: {answer}, {text}")
    return answer
