"""How the figures were had: method, environment, reproduction, and where each number comes from."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping

from workbench.derive.factors import FACTORS, LABELS, METRICS
from workbench.evidence.timing import METHOD
from workbench.judge.rows import Ablation, Row
from workbench.judge.sessions import TimingFacts
from workbench.render.document import ladder_table, timings
from workbench.render.document.blocks import (
    Block,
    Bullets,
    CodeBlock,
    Field,
    Fold,
    Paragraph,
    Table,
    Text,
    code,
    field,
    joined,
    line,
    table,
    words,
)
from workbench.render.document.phrases import ladders, reason, steps
from workbench.render.document.sentences import sentence
from workbench.render.document.why import NOISE
from workbench.render.numbers import number, shorten
from workbench.words import ABSENT, NONE, Status

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
    """How correctness, times and profiles were had, as the provenance says; folded away is what the
    sessions say of themselves.
    """
    points = Bullets(
        (
            words(
                "Correctness: every variant against the study's float64 reference, on fresh random "
                "inputs at several shapes, outputs filled with NaN before each call, inputs "
                "unchanged after it. What fails is not timed."
            ),
            words(_timing(ablation.timing)),
            words(recorded(ablation)),
            words(f"Profiles: {_profile(ablation.environment.ncu_options)}"),
        )
    )
    return [
        points,
        Fold(words("Regimes, sessions and twins"), tuple(sessions(ablation)), brief=True),
    ]


def sessions(ablation: Ablation) -> list[Block]:
    """What the regimes are, and what shows that the intervals hold."""
    told: list[Block] = [
        Bullets(tuple(map(words, [_regimes(ablation.timing), *_company(ablation)])))
    ]
    known = [(ladder.shape, ladder.timing) for ladder in ladders(ablation) if ladder.timing]
    shown = [f"{shape}: {text}" for shape, facts in known if (text := timings.twin_words(facts))]
    if not shown:
        return [*told, Paragraph(words(f"Twins: {ABSENT}."))]
    text = (
        "Twins are a second group of instances of the same variant in every session, judged as if "
        "they were another: they must come out as 1, and say how small a difference is none."
    )
    return [*told, Paragraph(words(text)), Bullets(tuple(map(words, shown)))]


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
REGIMES = (
    "Back to back is behind itself, cold behind an overwritten L2. Verdicts are on chained times."
)
CHAINED = {
    1: f"Chained is what a call adds to its neighbours in one CUDA graph: {AROUND}; the same graph "
    f"without the variant is timed beside it and taken off. {REGIMES}",
    2: f"Chained is the time of a call between two neighbours in one CUDA graph: {AROUND}. Stamps "
    "before and behind the call have its time, less that of two stamps with nothing between. "
    f"Events are a second clock: a time on which the two disagree is not printed. {REGIMES}",
}


def _regimes(facts: TimingFacts | None) -> str:
    told = CHAINED[facts.method if facts else METHOD]
    if facts is not None and facts.stride > 1:
        told += (
            f" The inputs are large here: the neighbours touch one of {facts.stride} pieces of "
            "16 bytes, so that the caches are left as they were."
        )
    if facts is not None and facts.copies > 1:
        told += (
            f" Inputs that are constant, such as weights, are held {facts.copies} times with other "
            "values, and calls have them in turn: none finds in L2 what the one before has read."
        )
    return told


def _company(ablation: Ablation) -> list[str]:
    """Whether the reference suffers from what it is timed beside."""
    if ablation.timing is None or not ablation.reference:
        return []
    company = ablation.timing.interference
    told = sentence(company.finding("company.undisturbed")) if company else ABSENT
    return [f"The reference by itself, in a session without any step: {told}."]


def recorded(ablation: Ablation) -> str:
    """How many timing runs there were at this shape, and what became of those that are gone."""
    found = ablation.recordings
    older = f", {found.unnoted} from before the journal" if found.unnoted else ""
    runs = f"{found.total} timing run{'s' * (found.total != 1)} at this shape{older}"
    kept = f"{found.superseded} superseded, their medians kept"
    told = [runs, kept if found.superseded else "none superseded"]
    if found.cut_short:
        told.append(f"{found.cut_short} cut short and not kept")
    return f"Recordings: {'; '.join(told)}."


def _profile(options: Mapping[str, str]) -> str:
    caches = CACHES.get(options.get("--cache-control", ""), f"cache control {ABSENT}")
    clock = options.get("--clock-control", "")
    clocks = "clocks left alone" if clock == "none" else f"clock control {clock or ABSENT}"
    return f"a run of its own under Nsight Compute, kernel by kernel, {caches}, {clocks}."


def explained(ablation: Ablation) -> str:
    """Which durations the factors explain: what the captures' cache control makes of them."""
    if ablation.environment.ncu_options.get("--cache-control") == "all":
        return (
            "Captures are runs of their own, with the caches flushed: they compare with the cold "
            "times, not with the chained ones."
        )
    return (
        "Captures are runs of their own with the caches kept, as the chained times have them: they "
        "are of single launches under the profiler."
    )


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
        Paragraph(
            line(
                "The first is meant for a checkout of the workbench. ",
                code("doctor"),
                " says what is missing on this machine. Where there is no GPU, ",
                code("ablate"),
                " uses the recorded evidence, and ",
                code("pip install -e ."),
                " is enough. ",
                code("report"),
                " writes this page and its charts again.",
            )
        ),
    ]


def sources(ablation: Ablation) -> Table:
    """What is shown, and the ncu metric or file behind it."""
    facts: list[Fact] = [
        (f.column.label, _quoted(f.column.source))
        for f in ladder_table.fields(ablation)
        if f.column.source
    ]
    facts += [(f"factor: {LABELS[key][0].lower()}", code(METRICS[key])) for key in FACTORS]
    return _facts("sources", "figure", "from", facts)


def _quoted(source: str) -> Text:
    """The words of a source with its metrics and files as code."""
    parts = [
        code(word.rstrip(";,")) + words(word[len(word.rstrip(";,")) :])
        if "_" in word or word.endswith((".json", ".json.zst"))
        else words(word)
        for word in source.split()
    ]
    return joined(parts, " ")


CAPTURES: list[Field[Row]] = [
    field("version", "version", lambda row: row.variant),
    field("capture", "capture", lambda row: code(row.capture) or _missing(row)),
    field("kernels", "kernels", lambda row: _kernels(row.kernels)),
]


def captures(ablation: Ablation) -> Iterator[Block]:
    """What was captured, and of what the report was not kept."""
    yield table("captures", CAPTURES, ablation.everything, key=lambda row: row.variant)
    without = [code(row.variant) for row in ablation.everything if row.tables_only]
    if without:
        why = "Their checksum finds damage, and no forgery: `workbench gate` does not take them."
        yield Paragraph(line("Tables without their report: ", joined(without, ", "), f". {why}"))


def _missing(row: Row) -> str:
    return ABSENT if row.status == Status.CURRENT else f"{ABSENT}: {reason(row)}"


def _kernels(kernels: Iterable[str]) -> Text:
    return joined([code(shorten(name, KERNEL_WIDTH)) for name in kernels]) or words(NONE)


def conventions(ablation: Ablation) -> Paragraph:
    """What counts as work, what the ceilings are, and what the noise is."""
    return Paragraph(
        line(
            "Timing and captures stand under ",
            code(f"ablations/{ablation.study}/evidence/"),
            ". Roofline points count FP32 add, multiply and fused multiply-add, packed FP16 "
            "multiply and fused multiply-add, and tensor operations, over the bytes of the same "
            "launches at each level; other arithmetic is not counted. Ceilings are a capture's own "
            "peak rates times its clocks: the chart draws those of the first capture, a share of "
            "the roof takes those of its own. Figures of a version that launches several kernels "
            "are taken over all of them. In what moved most, "
            f"{NOISE}; the part is a factor's part in the change of the time, or "
            "the share of the samples in the stalls that the figure feeds.",
        )
    )
