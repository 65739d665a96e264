"""What benchmarks/models.py has on record, and the tables of docs/models.md made from it.

python -m benchmarks.models_page        writes the tables anew
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from workbench.derive.intervals import Interval, over_sessions
from workbench.render.numbers import number, percent
from workbench.study.model import Study
from workbench.study.sources import Fingerprints
from workbench.study.workspace import find_workspace

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "models.md"
RECORDED = ROOT / "benchmarks" / "recorded" / "models.json"
TABLE = re.compile(r"(<!-- models: (?P<name>\w+) -->\n).*?(<!-- /models -->)", re.DOTALL)
OURS, SDPA, FA4, NONE = "workbench", "sdpa_unmasked", "fa4", "no_attention"
IMPLEMENTATIONS = (SDPA, FA4, OURS, NONE)
TOKENS = (512, 2048, 8192)  # of a forward pass

Session = dict[str, float]  # implementation to milliseconds; see ``launched``
Errors = dict[str, float]  # implementation to the relative error of its logits


def launched(implementation: str) -> str:
    """What its time is called without a CUDA graph, with all that Python and launches take."""
    return f"{implementation}, launched"


@dataclass(frozen=True)
class Model:
    """``config`` and ``kind`` are classes of transformers. Sequences are as long as a forward pass
    has tokens, but for those of a model that takes no more than ``longest``.
    """

    title: str
    config: str
    kind: str
    dtype: str
    settings: Mapping[str, Any]
    keeps_logits: bool = False
    longest: int = 1 << 20

    def batch(self, tokens: int) -> int:
        return max(1, tokens // self.longest)


MODELS = {
    "llama": Model(
        title="Llama-like, the shape of Llama-3.2-1B: 16 layers, 32 heads of 64 over 8 of keys, "
        "causal, bf16",
        config="LlamaConfig",
        kind="LlamaForCausalLM",
        dtype="bfloat16",
        settings={
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "vocab_size": 128256,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": True,
        },
        keeps_logits=True,
    ),
    "llama-d128": Model(
        title="Llama-like: 16 layers, 16 heads of 128 over 8 of keys, causal, bf16",
        config="LlamaConfig",
        kind="LlamaForCausalLM",
        dtype="bfloat16",
        settings={
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 32000,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": True,
        },
        keeps_logits=True,
    ),
    "bert": Model(
        title="BERT-like: 32 layers, 24 heads of 64, fp16, sequences of 512 tokens",
        config="BertConfig",
        kind="BertForMaskedLM",
        dtype="float16",
        settings={
            "hidden_size": 1536,
            "intermediate_size": 6144,
            "num_hidden_layers": 32,
            "num_attention_heads": 24,
            "vocab_size": 30522,
            "max_position_embeddings": 512,
        },
        longest=512,
    ),
}


class Recording(msgspec.Struct, kw_only=True):
    """``times`` are by model and number of tokens, one mapping a session; ``sources`` are the
    kernel's fingerprint.
    """

    sources: str
    gpu: str = ""
    driver: str = ""
    date: str = ""
    packages: dict[str, str] = msgspec.field(default_factory=dict)
    parameters: dict[str, int] = msgspec.field(default_factory=dict)
    times: dict[str, dict[int, list[Session]]] = msgspec.field(default_factory=dict)
    errors: dict[str, dict[int, Errors]] = msgspec.field(default_factory=dict)

    def add_times(self, model: str, tokens: int, session: Session) -> None:
        self.times.setdefault(model, {}).setdefault(tokens, []).append(session)

    def add_errors(self, model: str, tokens: int, errors: Errors) -> None:
        self.errors.setdefault(model, {})[tokens] = errors

    def worst_error(self) -> float:
        """The largest error of our logits as a multiple of SDPA's; NaN where one is none."""
        every = [e[OURS] / e[SDPA] for by in self.errors.values() for e in by.values()]
        return math.nan if any(map(math.isnan, every)) else max(every, default=0.0)


def sources(study: Study) -> str:
    """The fingerprint of the kernels that were run; neither of the adapter nor of the launch."""
    return Fingerprints(study).of_sources("chosen")


def load(path: Path) -> Recording:
    return msgspec.json.decode(path.read_bytes(), type=Recording)


def save(recording: Recording, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(recording)) + b"\n")


def of_sessions(sessions: list[Session], figure: Callable[[Session], float]) -> Interval:
    """The geometric mean of a figure of each session, with the 95 % interval over them."""
    return over_sessions([math.log(figure(session)) for session in sessions])


def shown(value: Interval, suffix: str = "") -> str:
    """With the ends of its interval where there is one."""
    if value.low is None or value.high is None:
        return f"{number(value.value)}{suffix}"
    return f"{number(value.value)}{suffix} [{value.low:.3f}, {value.high:.3f}]"


def share(sessions: list[Session], implementation: str) -> str:
    """Of a forward pass, what goes when attention gives its queries back as they are."""
    part = fmean(1 - session[NONE] / session[implementation] for session in sessions)
    return percent(part)


def without_graph(session: Session) -> float:
    """SDPA's time by ours, as Python launches both."""
    return session[launched(SDPA)] / session[launched(OURS)]


def rows(recording: Recording, model: str) -> list[tuple[str, ...]]:
    """A row for each number of tokens: times in ms, ratios, shares, error."""
    found = []
    for tokens, sessions in sorted(recording.times.get(model, {}).items()):
        others = [name for name in (SDPA, FA4) if all(name in one for one in sessions)]
        first = sessions[0]
        best = min(others, key=lambda name: sum(one[name] for one in sessions))
        against = of_sessions(sessions, lambda one, best=best: one[best] / one[OURS])  # type: ignore[misc]
        errors = recording.errors.get(model, {}).get(tokens)
        found.append(
            (
                f"{tokens}" if MODELS[model].batch(tokens) == 1
                else f"{MODELS[model].batch(tokens)} × {tokens // MODELS[model].batch(tokens)}",
                *(
                    number(of_sessions(sessions, lambda one, name=name: one[name]).value)  # type: ignore[misc]
                    if name in first else "not collected"
                    for name in (SDPA, FA4, OURS)
                ),
                f"{shown(against, 'x')} ({'SDPA' if best == SDPA else 'FlashAttention-4'})",
                f"{share(sessions, SDPA)} → {share(sessions, OURS)}",
                shown(of_sessions(sessions, without_graph), "x")
                if all(launched(OURS) in one for one in sessions) else "not collected",
                f"{errors[OURS] / errors[SDPA]:.3f}x" if errors else "not collected",
            )
        )  # fmt: skip
    return found


HEADER = (
    "tokens",
    "SDPA (ms)",
    "FlashAttention-4 (ms)",
    "ours (ms)",
    "ours vs the faster of both [95 % interval]",
    "share of attention, SDPA → ours",
    "ours vs SDPA without a graph",
    "error of logits ÷ SDPA's",
)


def table(recording: Recording, name: str) -> str:
    """One model's, in Markdown, under what the model is."""
    body = rows(recording, name)
    if not body:
        return f"{MODELS[name].title}: not collected.\n"
    sessions = min(len(one) for one in recording.times[name].values())
    what = f"{MODELS[name].title}; {recording.parameters[name] / 1e9:.2f} billion parameters, "
    lines = [what + f"{sessions} session{'s' if sessions != 1 else ''}.", ""]
    lines += [f"| {' | '.join(row)} |" for row in (HEADER, ("---:",) * len(HEADER), *body)]
    return "\n".join(lines) + "\n"


def provenance(recording: Recording) -> str:
    with_ = ", ".join(f"{name} {what}" for name, what in recording.packages.items() if what)
    return f"{recording.gpu}, driver {recording.driver}, {recording.date[:10]}; {with_}.\n"


def page(text: str, recording: Recording | None) -> str:
    """The page with its tables made anew; what is not on record, or of other sources, is not
    collected.
    """

    def made(match: re.Match[str]) -> str:
        name = match["name"].replace("_", "-")
        if recording is None:
            body = "Not collected.\n"
        else:
            body = provenance(recording) if name == "provenance" else table(recording, name)
        return f"{match[1]}{body}{match[3]}"

    return TABLE.sub(made, text)


def current(study: Study) -> Recording | None:
    """What is on record of the sources as they are."""
    recording = load(RECORDED) if RECORDED.is_file() else None
    return recording if recording and recording.sources == sources(study) else None


def write(recording: Recording | None) -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), recording), encoding="utf-8")


if __name__ == "__main__":
    found = current(find_workspace(ROOT).study("attention_served"))
    write(found)
    print("written" if found else "nothing is on record of these sources", file=sys.stderr)
