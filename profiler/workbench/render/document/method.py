"""How the figures were measured, their limits, the environment, and how to reproduce them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from workbench.evidence.timing import METHOD
from workbench.judge.rows import Ablation
from workbench.judge.sessions import TimingFacts
from workbench.render.document import result, step, timings
from workbench.render.document.blocks import (
    Block,
    Bullets,
    CodeBlock,
    Field,
    Fold,
    Table,
    Text,
    code,
    field,
    paragraph,
    table,
    words,
)
from workbench.render.document.phrases import steps
from workbench.render.document.sentences import sentence
from workbench.render.numbers import number
from workbench.words import ABSENT

KERNEL_WIDTH = 90
ENVIRONMENT = (
    ("GPU", "gpu"),
    ("Compute capability", "compute_capability"),
    ("Driver", "driver"),
    ("CUDA", "cuda"),
    ("NVRTC", "nvrtc"),
    ("PyTorch", "torch"),
    ("cuDNN", "cudnn"),
    ("Python", "python"),
    ("Nsight Compute", "ncu"),
)
CACHES = {"all": "caches flushed before every pass", "none": "caches left as they were"}
Fact = tuple[str, Text]


def method(ablation: Ablation) -> list[Block]:
    """How correctness, times and profiles were measured, and what limits the evidence."""
    points = [
        words(
            "Correctness: every variant against the study's float64 reference, on fresh random and "
            "difficult inputs at several shapes, with outputs filled with NaN before each call. "
            "A wrong variant is never timed."
        ),
        words(_timing(ablation.timing)),
        words(_regimes(ablation.timing)),
        *filter(None, [result.other_regimes(ablation)]),
        words(recorded(ablation)),
        words(f"Profiles: {_profile(ablation.environment.ncu_options)}"),
    ]
    if ablation.score.total:
        points.append(words(f"Predictions: {step.results(ablation.score)}."))
    blocks: list[Block] = [Bullets(tuple(points))]
    notes = (*result.warnings(ablation), *sessions(ablation))
    if notes:
        blocks.append(Fold(words("Notes on the evidence"), (Bullets(notes),)))
    known = Fold(words("Environment"), (environment(ablation),))
    return [*blocks, known, *reproduction(ablation)]


def sessions(ablation: Ablation) -> tuple[Text, ...]:
    """What the A/A controls and the interference check show."""
    known = [(ladder.shape, ladder.timing) for ladder in ablation.ladders if ladder.timing]
    shown = [f"{shape}: {text}" for shape, facts in known if (text := timings.control_words(facts))]
    return tuple(map(words, [*_company(ablation), *shown]))


def _timing(facts: TimingFacts | None) -> str:
    if facts is None:
        return f"Times: {ABSENT}."
    added = f" ({facts.most} where a verdict was open, then at 99 %)"
    more = added if facts.most > facts.sessions else ""
    fewer = f" (fewer of {', '.join(facts.fewer)}, whose calls are slow)" if facts.fewer else ""
    return (
        f"Times: {facts.sessions} sessions (processes) of {facts.instances} instances of every "
        f"variant{fewer}{more}, each with buffers and graphs of its own, in {facts.rounds} rounds "
        "of random order: geometric means of the instances' medians. The 95 % interval of a ratio "
        "is Student's t over sessions."
    )


AROUND = (
    "a kernel writes the inputs from changing sources, the variant runs, a kernel keeps its output"
)
REGIMES = "Back to back is call after call, cold with L2 flushed. Verdicts are on chained times."
CHAINED = {
    1: f"Chained is what a call adds to its neighbours in one CUDA graph: {AROUND}; the same graph "
    f"without the variant is timed beside it and taken off. {REGIMES}",
    2: f"Chained is the time of a call between two neighbours in one CUDA graph: {AROUND}. Stamps "
    "before and behind the call have its time, less that of two stamps with nothing between. "
    f"Events are a second clock: a time on which the two disagree is not printed. {REGIMES}",
}


def _regimes(facts: TimingFacts | None) -> str:
    text = CHAINED[facts.method if facts else METHOD]
    if facts is not None and facts.stride > 1:
        text += (
            f" The inputs are large here: the neighbours touch one of {facts.stride} pieces of "
            "16 bytes, so that the caches are left as they were."
        )
    if facts is not None and facts.copies > 1:
        text += (
            f" Inputs that are constant, such as weights, are held {facts.copies} times with other "
            "values, and calls have them in turn: none finds in L2 what the one before has read."
        )
    return text


def _company(ablation: Ablation) -> list[str]:
    """Whether the reference suffers from what it is timed beside."""
    if ablation.timing is None or not ablation.reference:
        return []
    beside = ablation.timing.interference
    text = sentence(beside.finding("interference.undisturbed")) if beside else ABSENT
    return [f"The reference alone, in a session without any step: {text}."]


def recorded(ablation: Ablation) -> str:
    """How many timing runs there were at this shape, and what became of those that are gone."""
    found = ablation.recordings
    older = f", {found.unnoted} from before the journal" if found.unnoted else ""
    runs = f"{found.total} timing run{'s' * (found.total != 1)} at this shape{older}"
    kept = f"{found.superseded} superseded, their medians kept"
    parts = [runs, kept if found.superseded else "none superseded"]
    if found.cut_short:
        parts.append(f"{found.cut_short} cut short and not kept")
    return f"Recordings: {'; '.join(parts)}."


def _profile(options: Mapping[str, str]) -> str:
    caches = CACHES.get(options.get("--cache-control", ""), f"cache control {ABSENT}")
    clock = options.get("--clock-control", "")
    clocks = "clocks left alone" if clock == "none" else f"clock control {clock or ABSENT}"
    return f"a run of its own under Nsight Compute, kernel by kernel, {caches}, {clocks}."


def environment(ablation: Ablation) -> Table:
    known = ablation.environment
    parameters = " ".join(f"{key}={value}" for key, value in ablation.parameters.items())
    shape = f"{ablation.shape} ({parameters})" if parameters else ablation.shape
    facts: list[Fact] = [
        ("Study and shape", words(f"{ablation.study}, {shape}")),
        *((label, words(getattr(known, key) or ABSENT)) for label, key in ENVIRONMENT),
        ("ncu flags", code(" ".join(known.ncu_flags)) or words(ABSENT)),
        ("SM clock under ncu", words(_clocks(ablation))),
        ("Date", words(f"{known.date or ABSENT} ({ablation.source})")),
        ("Measured by", code(known.command or "") or words(ABSENT)),
    ]
    return _facts("environment", "what", "value", facts)


def _facts(name: str, what: str, value: str, facts: Iterable[Fact]) -> Table:
    fields: list[Field[Fact]] = [
        field("what", what, lambda fact: fact[0]),
        field("value", value, lambda fact: fact[1]),
    ]
    return table(name, fields, facts, key=lambda fact: fact[0])


def _clocks(ablation: Ablation) -> str:
    clocks = [r.figures["sm_clock"].value for r in ablation.everything if "sm_clock" in r.figures]
    if not clocks:
        return ABSENT
    low, high = number(min(clocks)), number(max(clocks))
    return f"{low} GHz" if low == high else f"{low} to {high} GHz"


def reproduction(ablation: Ablation) -> list[Block]:
    named = [row.variant for row in steps(ablation)]
    where = ["--study", ablation.study, "--shape", ablation.shape]
    commands = (
        ["pip", "install", "-e", ".[gpu]"],
        ["workbench", "doctor"],
        ["workbench", "ablate", *named, *where],
        ["workbench", "report", *where],
    )
    return [
        CodeBlock("\n".join(map(shlex.join, commands)), "console"),
        paragraph(
            "Run these in a checkout. With a GPU, ",
            code("ablate"),
            " measures what is not recorded; without one, ",
            code("pip install -e ."),
            " is enough and the recorded evidence is used. The page has each step's diff: ",
            code(f"workbench report --open --study {ablation.study}"),
            ".",
        ),
    ]
