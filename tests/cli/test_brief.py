"""Answers of ``--brief``: their size on all recorded studies, ids that lead back, one step of the
loop of a coding agent, and errors.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from answers import Capsys, Patch, both_of, error_of, published, text_of
from standin import StandIn
from workbench.app.executor import Local
from workbench.app.target import Target, find_target
from workbench.cli.main import VERBS as OPTIONS
from workbench.cli.main import main
from workbench.cli.options import Answered
from workbench.cli.schema import VERBS
from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.evidence.store import measured_ceilings
from workbench.judge.advice_rules import advise, subject
from workbench.judge.ladder import Ablation, judge
from workbench.judge.times import ShapeTimes, main_timing
from workbench.render import as_json, in_short
from workbench.render.as_json import plain_data
from workbench.render.document.printed_ladder import parent_of
from workbench.run.measurement import Measurement
from workbench.words import Verdict
from workspaces import FIXTURE, GOOD, ROOT, copy_of_fixture, make, recorded_ladder, rewrite


def answer(
    capsys: Capsys, *arguments: str, code: int = 0, limit: int = in_short.LIMIT
) -> dict[str, Any]:
    capsys.readouterr()
    printed = text_of(capsys, *arguments, "--brief", code=code)
    assert len(printed.encode()) <= limit + 1
    assert printed.count("\n") == 1
    told = dict(json.loads(printed))
    is_as_published(arguments[0], told)
    assert {"error", "stop", "next_command"} & told.keys()
    return told


def is_as_published(verb: str, told: dict[str, Any]) -> None:
    published(verb, short=True).validate(told)


@pytest.fixture(scope="module", params=["attention", "moe", "transpose"])
def judged(request: pytest.FixtureRequest) -> Ablation:
    target = find_target(Local(), ROOT, request.param, None)
    return judge(target.load_ladder(), target.workspace.config)


@pytest.mark.slow
def test_every_answer_of_a_recorded_study_is_within_its_limit(judged: Ablation) -> None:
    text = in_short.dumps(in_short.ladder(judged))
    assert len(text.encode()) <= in_short.LIMIT
    is_as_published("ablate", json.loads(text))
    for row in judged.everything:
        step, more = in_short.step(judged, row), in_short.more(judged, row)
        assert "left_out" not in json.loads(in_short.dumps(step)), row.variant
        assert len(in_short.dumps(more, in_short.MORE).encode()) <= in_short.MORE
        assert step["evidence"] == in_short.identity(judged, row)
        is_as_published("advise", json.loads(in_short.dumps(step)))
        is_as_published("show", json.loads(in_short.dumps(more, in_short.MORE)))


def test_the_next_command_of_every_step_is_one_that_works(tmp_path: Path, capsys: Capsys) -> None:
    root = copy_of_fixture(tmp_path, "softmax")
    target = find_target(Local(), root, "softmax", None)
    ladder = judge(target.load_ladder(), target.workspace.config)
    every = ladder.everything
    commands = {row.verdict: in_short.step(ladder, row)["next_command"] for row in every}
    assert len(commands) > 2
    rejected = next(row for row in ladder.rows if row.verdict == Verdict.SLOWER)
    at = f"advise '{parent_of(rejected)}' --shape {ladder.shape} "
    assert at in str(commands[Verdict.SLOWER])
    for verdict, command in commands.items():
        workbench, *words = shlex.split(str(command))
        assert workbench == "workbench"
        codes = {"wrong": 1, "inconclusive": 3}  # which is measured again, and not here
        assert main([*words, "--project", str(root)]) == codes.get(str(verdict), 0), command
    capsys.readouterr()


@pytest.mark.parametrize("verb", VERBS)
def test_a_schema_is_printed_for_each_verb(verb: str, capsys: Capsys) -> None:
    printed = json.loads(text_of(capsys, "schema", verb))
    jsonschema.Draft202012Validator.check_schema(printed)
    told = {"schema_version": as_json.VERSION, **in_short.error(ToolFailed("no"))}
    jsonschema.validate(told, printed)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**told, "nosuch": 1}, printed)


def test_every_verb_with_brief_has_a_schema() -> None:
    assert {name for name, options in OPTIONS.items() if issubclass(options, Answered)} == {*VERBS}


def test_a_kernel_without_advice_stops_and_says_why() -> None:
    ladder = recorded_ladder()
    row = replace(ladder.rows[0], advice=())
    told = in_short.step(ladder, row)
    assert told["stop"] is True
    assert "promises" in str(told["why_stop"])
    assert "next_command" not in told


@pytest.mark.parametrize(
    ("variant", "taken", "name"),
    [
        ("fix2", ["fix2"], "fix3"),
        ("fix2[warps=2]", ["fix2", "fix3[a=1]"], "fix4"),
        ("baseline", ["baseline"], "baseline2"),
    ],
)
def test_a_next_step_has_a_free_name(variant: str, taken: list[str], name: str) -> None:
    assert in_short.free_name(variant, taken) == name


def test_every_verb_of_the_loop_answers_in_one_short_line(
    tmp_path: Path, builds_here: None, capsys: Capsys
) -> None:
    root, here = tmp_path / "ws", ["--project", str(tmp_path / "ws")]
    assert answer(capsys, "init", str(root))["study"]
    assert answer(capsys, "list", *here)["studies"][0]["variants"]
    assert answer(capsys, "build", "fix1", *here)["builds"][0]["variant"] == "fix1"
    assert answer(capsys, "new", "fix2", "--from", "fix1", "--change", "c", *here)["variant"]


class Measured:
    """A study's evidence at any shape, read without the ladder that is judged by it."""

    def __init__(self, target: Target) -> None:
        self.target, self.ceilings = target, measured_ceilings(target.folder.gpu)
        self.times = cache(self._times)

    def _times(self, shape: str) -> ShapeTimes:
        ladder = self.target.study.ladder
        names = [s.variant for s in ladder.chain([])] + [r.name for r in ladder.references]
        known = replace(self.target, shape=shape).load(names)
        return ShapeTimes(known, main_timing(known, names))

    def advice(self, shape: str, variant: str) -> set[tuple[str, str]]:
        """Limit and kind of change of all advice by the capture at a shape."""
        here = replace(self.target, shape=shape).load([variant], captures=True)
        capture = here.variants[variant].capture
        if capture is None:
            return set()
        of = subject(capture, None, self.ceilings, self.target.study.work(shape))
        return {(a.limit.id, str(a.change)) for a in advise(of) or ()}


def wrongly_of(told: dict[str, Any], measured: Measured) -> Iterator[str]:
    """The keys of an answer whose value is not the one that was measured at its shape."""
    variant, shape = told["variant"], told["shape"]
    times, ladder = measured.times(shape), measured.target.study.ladder
    time = times.time(variant)
    if told["microseconds"] != (time and time.value):
        yield "microseconds"
    if best := told["speedup_over_fastest"]:
        name, ratio = times.least([r.name for r in ladder.references], variant, best["regime"])
        if (best["of"], best["ratio"]) != (name, in_short.ratio(ratio)):
            yield "speedup_over_fastest"
    for at in filter(None, (told, told.get("judged"))):
        known = measured.times(at["shape"])
        ratios = [known.ratio(told["parent"], variant, every=every) for every in (True, False)]
        if at.get("speedup_over_parent") not in (None, *map(in_short.ratio, ratios)):
            yield f"speedup_over_parent at {at['shape']}"
    if shape not in str(told["evidence"]).split("/"):
        yield "evidence"
    advice = measured.advice(shape, variant)
    kinds = [one["kind"] for one in told["next"] or ()]
    if not {*kinds} <= {kind for _, kind in advice}:
        yield "next"
    if kinds and (told["limit"], kinds[0]) not in advice:
        yield "limit"


@pytest.mark.slow
def test_every_figure_of_a_recorded_study_is_of_the_shape_that_is_named(judged: Ablation) -> None:
    measured = Measured(find_target(Local(), ROOT, judged.study, None))
    elsewhere = {row.variant: row.judged_at for row in judged.rows if row.judged_at}
    for row in judged.everything:
        told = in_short.step(judged, row)
        assert list(wrongly_of(told, measured)) == [], row.variant
        deciding = plain_data(told.get("judged") or {})
        assert deciding.get("shape") == elsewhere.get(row.variant)
        assert row.variant not in elsewhere or "failed" not in told
    assert len(elsewhere) >= {"transpose": 0}.get(judged.study, 3)


@pytest.mark.parametrize("many", [90, 20_000])
def test_lists_are_cut_at_their_end_to_fit(many: int) -> None:
    told = json.loads(in_short.dumps({"few": ["a"], "many": ["x" * 90] * many}))
    assert told["few"] == ["a"]
    assert len(told["many"]) + told["left_out"] == many
    assert len(told["many"]) > 30
    assert len(json.dumps(told, separators=(",", ":"))) <= in_short.LIMIT


HERE = ("--project", str(FIXTURE))


def test_an_id_leads_to_more_of_the_same_step(capsys: Capsys) -> None:
    step = answer(capsys, "advise", "fix2", *HERE)
    more = answer(capsys, "show", str(step["evidence"]), *HERE, limit=in_short.MORE)
    assert {name: more[name] for name in step} == step
    assert more["figures"]["registers"] > 0
    assert answer(capsys, "profile", "fix2", *HERE) == step
    two = answer(capsys, "diff", "fix1", "fix2", *HERE)
    assert two["evidence"][1] == step["evidence"]
    over = step["speedup_over_parent"][0]
    assert two["speedup"][0] == pytest.approx(over, rel=0.02)  # other sessions


def test_a_wrong_step_says_where(capsys: Capsys) -> None:
    told = answer(capsys, "check", "fix3", *HERE, code=main(["check", "fix3", *HERE]))
    assert told["verdict"] == "wrong"
    assert told["checks"][0]["max_error"] > told["checks"][0]["allowed"]
    step = answer(capsys, "ablate", "fix3", *HERE, code=1)
    assert (step["verdict"], step["input_kind"]) == ("wrong", "outliers")


def test_a_sweep_in_short_is_of_combinations(tmp_path: Path, capsys: Capsys) -> None:
    root = copy_of_fixture(tmp_path, "softmax")
    told = answer(capsys, "sweep", "fused[warps=8|16]", "--project", str(root))
    (swept,) = told["sweeps"]
    times = [each["microseconds"] for each in swept["combinations"]]
    assert len(times) > 1
    assert times == sorted(times)
    assert swept["combinations"][0]["variant"] in shlex.split(told["next_command"])


def test_a_bug_fix_says_why_it_is_kept(capsys: Capsys) -> None:
    told = answer(capsys, "advise", "fix28", "--study", "attention", "--project", str(ROOT))
    assert told["verdict"] == "kept"
    assert told["speedup_over_parent"][0] < 1.01
    assert told["why"].startswith("it corrects fix23: in fp16")


def test_two_variants_without_a_shape_in_common_cannot_be_compared(capsys: Capsys) -> None:
    at = ("--study", "attention", "--project", str(ROOT))
    told = answer(capsys, "diff", "fix17", "fix30", *at, code=5)
    assert told["error"]["code"] == "cannot_tell"
    assert "fix17: unsupported: only head dimension 64" in told["error"]["message"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["advise", "fix99", *HERE],
        ["ablate", "--nonsense"],
        ["try", "nowhere.py"],
        ["diff", "fix1", "fix1", *HERE],
    ],
)
def test_errors_are_json_on_stdout(arguments: list[str], capsys: Capsys) -> None:
    told = answer(capsys, *arguments, code=2)
    out, err = both_of(capsys, *arguments, "--json", code=2)
    assert json.loads(out)["error"] == told["error"]
    assert told["error"]["message"] in err
    assert (told["error"]["code"], told["error"]["exit_code"]) == ("usage", 2)
    assert told["error"]["message"]
    assert told["schema_version"] == as_json.VERSION


@pytest.mark.parametrize("text", ["x" * 9000, "µ" * 9000, "\ud800" * 9000])
def test_long_texts_of_any_letters_fit(text: str) -> None:
    for data in (in_short.error(ToolFailed(text, hint=text)), {"one": text, "two": [text]}):
        told = in_short.dumps(data)
        assert len(told.encode()) <= in_short.LIMIT
        assert json.loads(told)["schema_version"] == as_json.VERSION
    assert json.loads(in_short.dumps(in_short.error(ToolFailed(text, hint=text))))["error"]["hint"]


Loop = tuple[StandIn, tuple[str, str]]
TIMES = {"baseline": 20.0, "best": 10.0, "near": 9.0, "far": 25.0, "bad": 5.0}


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: Patch) -> Loop:
    root = make(tmp_path / "ws", dict.fromkeys(TIMES, GOOD))
    gpu = StandIn(monkeypatch, lambda run: TIMES[run.variant])
    gpu.wrong = lambda run: run.variant == "bad"
    here = ("--project", str(root))
    assert main(["ablate", "best", *here]) == 0
    for seen in (gpu.jobs, gpu.checked, gpu.timed, gpu.captured):
        seen.clear()
    return gpu, here


def sessions(gpu: StandIn) -> list[int]:
    return [job.sessions for job in gpu.jobs if hasattr(job, "sessions")]


def test_a_step_near_the_best_gets_more_sessions_and_a_profile(loop: Loop, capsys: Capsys) -> None:
    gpu, here = loop
    told = answer(capsys, "ablate", "near", *here, code=5)  # nothing is captured here
    assert "provisional" not in told
    assert told["verdict"] == "inconclusive"
    assert "kernels" in [gate["gate"] for gate in told["failed"]]
    assert sessions(gpu) == [3, 5]
    assert gpu.timed[0] == ["baseline", "near"]
    assert "near" in gpu.captured
    assert told["seconds"] > 0
    assert told["speedup_over_parent"][0] == pytest.approx(20 / 9, rel=0.01)


def test_an_answer_says_why_ncu_profiled_nothing(
    loop: Loop, monkeypatch: Patch, capsys: Capsys
) -> None:
    _, here = loop

    def denied(*given: Any) -> None:
        raise EnvironmentLacks("ERR_NVGPUCTRPERM - no permission", hint="ask root")

    monkeypatch.setattr(Measurement, "capture", denied)
    told = answer(capsys, "ablate", "near", *here, code=3)
    assert told["verdict"] == "inconclusive"
    assert told["error"]["code"] == "ncu.permission"


@pytest.mark.parametrize(
    ("words", "code", "verdict", "times"),
    [
        (["far"], 1, "slower", 1),
        (["near", "--quick"], 5, "kept", 1),
        (["bad"], 1, "wrong", 0),  # nor is its parent timed again
    ],
)
def test_a_slow_wrong_or_quick_step_is_not_profiled(
    words: list[str], code: int, verdict: str, times: int, loop: Loop, capsys: Capsys
) -> None:
    """A verdict of few sessions is provisional."""
    gpu, here = loop
    told = answer(capsys, "ablate", *words, *here, code=code)
    assert (told["verdict"], told.get("provisional", False)) == (verdict, bool(times))
    assert (sessions(gpu), len(gpu.timed), gpu.captured) == ([3], times, [])
    assert verdict != "wrong" or gpu.checked == ["bad"]


def test_a_step_is_measured_at_the_shape_where_it_is_judged(loop: Loop, capsys: Capsys) -> None:
    gpu, here = loop
    root, own = Path(here[1]), 'variant = "far"\n'
    rewrite(root / "kernels/scale/study.py", '"odd":', '"small": Shape(n=4096), "odd":')
    rewrite(root / "ablations/scale/ablation.toml", own, f'{own}shape = "small"\n')
    told = answer(capsys, "ablate", "far", "--quick", *here, code=1)
    assert (told["shape"], told["verdict"]) == ("small", "slower")
    assert {job.shape for job in gpu.jobs} == {"small"}


def test_quick_without_brief_is_refused(capsys: Capsys) -> None:
    assert "--brief" in error_of(capsys, "ablate", "fix1", "--quick", *HERE)
