"""A space that is too large to time as a whole: Optuna says what to try, sessions what is best.

Every value that Optuna is told stands in the evidence, and its draws have a seed. So the same
command goes through the same trials again, and measures those alone that are not on record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from workbench.commands.measuring import ensure_timed
from workbench.commands.progress import note
from workbench.commands.target import Target
from workbench.derive.speedup import ratio_of, session_times
from workbench.errors import EnvironmentLacks
from workbench.judge.fates import Fate, fate_of, imprecision, refusal
from workbench.judge.snapshot import at_one_shape
from workbench.judge.sweep import Searched
from workbench.study.config import for_study
from workbench.study.params import with_values
from workbench.study.spaces import Axis, count_of
from workbench.study.workspace import including
from workbench.words import Parameter, Regime

if TYPE_CHECKING:
    from workbench.judge.inputs import ShapeEvidence

BATCH = 16  # tried side by side, and beside the default
FINAL = 16  # of the fastest are timed together
SEED = 0
DRAWS = 20  # for each new one, at most: a small space soon has none that is new
INSTALL = "pip install optuna, or '.[search]' in the workbench's own checkout"


@dataclass
class Trials:
    """By variant: how many times faster than the default it was when it was tried, None where it
    could not be timed.
    """

    known: dict[str, float | None] = field(default_factory=dict)

    @property
    def fastest(self) -> list[str]:
        """Those that go on."""
        timed = {name: value for name, value in self.known.items() if value is not None}
        return sorted(timed, key=timed.__getitem__, reverse=True)[:FINAL]


def library() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise EnvironmentLacks(
            "optuna is not installed, and does the search", hint=INSTALL
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class Search:
    """Trials of the combinations of some axes, those of ``base``, at the target's shape."""

    def __init__(self, target: Target, base: str, axes: Sequence[Axis]) -> None:
        self.target, self.base, self.axes = target, base, axes
        self.trials = Trials()
        optuna = library()
        self.failed = optuna.trial.TrialState.FAIL
        sampler = optuna.samplers.TPESampler(seed=SEED, constant_liar=True, n_startup_trials=BATCH)
        self.optuna = optuna.create_study(direction="maximize", sampler=sampler)
        self.distributions = {axis.name: _distribution(optuna, axis) for axis in axes}

    def run(self, number: int, *, fresh: bool) -> Searched:
        """So many trials; fewer where the space has no more, or where no more can be measured."""
        while len(self.trials.known) < number:
            asked = self.ask(min(BATCH, number - len(self.trials.known)))
            if not asked:
                break
            found = self.values(list(asked), fresh=fresh)
            self.trials.known |= found
            for name, trials in asked.items():
                for trial in trials:
                    self.tell(trial, name)
            if missing := [name for name in asked if name not in found]:
                note(f"{len(missing)} trials are not on record, and nothing can be measured here")
                break
            timed = sum(value is not None for value in self.trials.known.values())
            note(f"tried {len(self.trials.known)} of {number} combinations, {timed} of them timed")
        known = self.trials.known
        timed = sum(value is not None for value in known.values())
        return Searched(space=count_of(self.axes), tried=len(known), timed=timed)

    def ask(self, number: int) -> dict[str, list[Any]]:
        """New combinations, each with the draws that it came from."""
        asked: dict[str, list[Any]] = {}
        for _ in range(DRAWS * number):
            trial = self.optuna.ask(self.distributions)
            values = {axis.name: _ordered(axis)[trial.params[axis.name]] for axis in self.axes}
            name = self.named(values)
            if name in self.trials.known:
                self.tell(trial, name)
                continue
            asked.setdefault(name, []).append(trial)
            if len(asked) == number:
                break
        return asked

    def named(self, values: Mapping[str, Parameter]) -> str:
        """The variant of a combination, which the target's study has from now on."""
        name = with_values(self.base, dict(values))
        self.target.study, (found,) = including(self.target.study, [name])
        return found

    def tell(self, trial: Any, name: str) -> None:
        value = self.trials.known.get(name)
        if value is None:
            self.optuna.tell(trial, state=self.failed)
        else:
            self.optuna.tell(trial, value)

    def values(self, names: list[str], *, fresh: bool) -> dict[str, float | None]:
        """Of each: how many times faster than the default; None where it could not be timed."""
        found = dict(self.recorded(names))
        if self.target.live and (fresh or len(found) < len(names)):
            wanted = list(dict.fromkeys([self.base, *names]))
            config = self.target.workspace.config
            refused = partial(refusal, gates=config.gates)
            ensure_timed(self.in_one_session(), wanted, fresh=fresh, refused=refused)
            found = dict.fromkeys(names) | dict(self.recorded(names, newest=fresh))
        return found

    def in_one_session(self) -> Target:
        config = self.target.workspace.config
        timing = replace(config.timing, sessions=1, max_sessions=1)
        workspace = replace(self.target.workspace, config=replace(config, timing=timing))
        return replace(self.target, workspace=workspace)

    def recorded(
        self, names: Sequence[str], *, newest: bool = False
    ) -> Iterator[tuple[str, float | None]]:
        """What is known of each from the first timing that has it beside the default, as it was
        when it was tried; nothing of those that were not tried.
        """
        wanted = list(dict.fromkeys([self.base, *names]))
        evidence = at_one_shape(self.target.evidence(), wanted, captures=False)
        gates = for_study(self.target.workspace.config, self.target.study.ladder).gates
        for name in names:
            one = evidence.variants[name]
            if not one.correct or imprecision(one, gates):
                fate, _ = fate_of(one, evidence.shape, gates)
                if fate != Fate.MISSING:
                    yield name, None
            elif (value := self.over_default(evidence, name, newest)) is not None:
                yield name, value

    def over_default(self, evidence: ShapeEvidence, name: str, newest: bool) -> float | None:
        if name == self.base:
            return 1.0
        for timing in reversed(evidence.timings) if newest else evidence.timings:
            if {self.base, name} <= timing.chained:
                times = session_times(timing.timing.together)
                pair = [times.get((each, Regime.CHAINED, False)) for each in (self.base, name)]
                over = ratio_of(*pair) if all(pair) else None  # type: ignore[arg-type]
                return over.ratio if over else None
        return None


def _distribution(optuna: Any, axis: Axis) -> Any:
    """Of places in ``_ordered``: those of numbers have an order."""
    places = len(axis.values)
    if any(isinstance(value, bool | str) for value in axis.values):
        return optuna.distributions.CategoricalDistribution(range(places))
    return optuna.distributions.IntDistribution(0, places - 1)


def _ordered(axis: Axis) -> list[Parameter]:
    if any(isinstance(value, bool | str) for value in axis.values):
        return list(axis.values)
    return sorted(axis.values, key=float)
