"""``workbench bisect``: `git bisect run` over the exit codes of `gate`."""

from __future__ import annotations

import sys
from shlex import join

from workbench.children import ended
from workbench.cli.options import BisectOptions
from workbench.errors import CannotTell, GateFailed, ToolFailed, UsageError
from workbench.run.repository import environment, repository_of
from workbench.study.workspace import find_workspace

# Git reads 125 as "cannot be tested".
RUN = '{} "$(git rev-parse BISECT_HEAD)"; code=$?; [ $code -le 1 ] && exit $code; exit 125'
STDERR = 2
ONLY_SKIPPED = 2  # the exit code of git where only such commits are left


def run(options: BisectOptions) -> int:
    """Search in a worktree without files, so that a bisect of the user's own goes on. What `gate`
    and git say goes to stderr. Raises GateFailed where the bad commit is not worse, and CannotTell
    where it, or a commit before the first bad one, cannot be tested.
    """
    workspace = find_workspace(options.project)
    repository = repository_of(workspace)
    good, bad = repository.commit(options.good), repository.commit(options.bad)
    asked = {"--project": str(workspace.root), "--study": workspace.study(options.study).name,
             "--variant": options.variant, "--on": options.on}  # fmt: skip
    words = [word for pair in asked.items() if pair[1] for word in pair if word]
    compare = [sys.executable, "-m", "workbench", "gate", *words, good.sha]
    code = ended([*compare, bad.sha], None, stdout=STDERR)
    if code == 0:
        raise GateFailed(
            f"{options.variant} is neither slower nor broken at {bad.said}",
            hint="`workbench gate` compares the two in full",
        )
    if code == CannotTell.exit_code:
        raise CannotTell(
            f"{bad.said} cannot be tested: the search has no bad end",
            hint="name another commit, or measure where there is a GPU and ncu",
        )
    if code != GateFailed.exit_code:
        return code or 0
    with repository.worktrees() as folder:
        place, kernels = folder / "bisect", str(repository.inside / "kernels")
        repository.git("worktree", "add", "--detach", "--no-checkout", str(place), bad.sha)
        git = ["git", "-C", str(place)]
        start = ["start", "--no-checkout", "--first-parent", bad.sha, good.sha, "--", kernels]
        if ended([*git, "bisect", *start], None, stdout=STDERR, env=environment()):
            raise UsageError(
                "git cannot search between these commits",
                hint="name an older commit of the same branch first, then a newer one",
            )
        run = ["run", "sh", "-c", RUN.format(join(compare))]
        code = ended([*git, "bisect", *run], None, stdout=STDERR, env=environment())
        if code == ONLY_SKIPPED:
            raise CannotTell(
                "each commit that git names above may be the first bad one",
                hint="those that could not be tested lack the variant, or need a GPU and ncu",
            )
        if code:
            hint = "git's own words above say why"
            raise ToolFailed(f"git bisect run ended with exit code {code}", hint=hint)
        show = [*git, "show", "-s", "--format=first bad: %h %s", "refs/bisect/bad"]
        return ended(show, None, env=environment()) or 0
