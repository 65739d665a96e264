"""Whether the advice names a fault that was planted: the tables of docs/advice.md.

The kernels are in benchmarks/planted, a workspace with the evidence of one GPU. Every fault has
the kinds of change that repair it, written before the first recording, and lines marked
``// fault: NAME``. Without a marked line the fault is of the launch.

python -m benchmarks.diagnosis
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools.pages import answer, table

WORKSPACE = Path(__file__).parent / "planted"
TOP = 3
FAULTS = tomllib.loads((WORKSPACE / "faults.toml").read_text("utf-8"))
NVIDIA = FAULTS.pop("ncu")
REPAIRS = {(study, fault): k for study, faults in FAULTS.items() for fault, k in faults.items()}
ASIDE = list(REPAIRS)[1::2]  # no rule was changed for these


class Diagnosis(NamedTuple):
    """What was said of one fault; ``lines`` are file lines, ``came`` the time over the repaired
    kernel's, ``promised`` the gain of the first advice that repairs it, None without one.
    """

    fault: tuple[str, str]
    repairs: frozenset[str]
    advised: tuple[str, ...]
    nvidia: tuple[frozenset[str], ...]
    lines: Mapping[str, int | None]
    marked: frozenset[int]
    came: float
    promised: float | None

    @property
    def at(self) -> int | None:
        """The line beside the first kind of change that repairs it."""
        return next((self.lines[kind] for kind in self.advised if kind in self.repairs), None)


def told(verb: str, study: str, variant: str) -> dict[str, Any]:
    return answer(verb, variant, "--study", study, "--project", str(WORKSPACE), "--json")


def kinds_of(title: str) -> frozenset[str]:
    return frozenset(k for words, kinds in NVIDIA.items() if words in title for k in kinds.split())


def diagnose(study: str, fault: str, repaired: float) -> Diagnosis:
    variant = f"kernel[fault={fault}]"
    found = told("advise", study, variant)
    repairs = frozenset(REPAIRS[study, fault].split())
    advice = found["advice"] or []
    source = (WORKSPACE / "kernels" / study / "kernel.cu").read_text().splitlines()
    rules = [limit for limit in told("show", study, variant)["bottlenecks"] if limit["rule"]]
    rules.sort(key=lambda rule: -(rule["estimated_speedup_pct"] or 0))
    return Diagnosis(
        (study, fault),
        repairs,
        tuple(each["change"] for each in advice),
        tuple(kinds_of(rule["title"]) for rule in rules[:TOP]),
        {each["change"]: each["line"] and each["line"]["line"] for each in advice},
        frozenset(n for n, line in enumerate(source, 1) if line.endswith(f"// fault: {fault}")),
        found["microseconds"] / repaired,
        next((each["estimated_gain"] for each in advice if each["change"] in repairs), None),
    )


def share(hits: float, of: int) -> str:
    text = f"{hits:.0f}" if hits == int(hits) else f"{hits:.1f}"
    return f"{text} of {of}"


def hits(found: Sequence[Diagnosis], top: int) -> int:
    return sum(bool(each.repairs & set(each.advised[:top])) for each in found)


def shuffled(found: Sequence[Diagnosis], top: int) -> float:
    """Each kernel with the advice of every other: the mean."""
    pairs = [(a, b) for a in found for b in found if a is not b]
    right = sum(bool(a.repairs & set(b.advised[:top])) for a, b in pairs)
    return right / (len(found) - 1)


def nvidia(found: Sequence[Diagnosis], top: int) -> int:
    return sum(any(each.repairs & kinds for kinds in each.nvidia[:top]) for each in found)


def summary(found: Sequence[Diagnosis]) -> str:
    n = len(found)
    rows = [
        (name, share(count(found, 1), n), share(count(found, TOP), n))
        for name, count in (
            ("of the workbench", hits),
            ("the same, shuffled among the kernels", shuffled),
            ("the largest estimates of ncu", nvidia),
        )
    ]
    return table(("advice", "right kind first", "right kind among three"), rows)


def faults(found: Sequence[Diagnosis]) -> str:
    rows = []
    for each in found:
        kinds = [f"**{kind}**" if kind in each.repairs else kind for kind in each.advised[:TOP]]
        line = "no line" if not each.marked else "yes" if each.at in each.marked else "no"
        promised = f"{each.promised:.2f}x" if each.promised else "-"
        advised = ", ".join(kinds) or "nothing"
        rows.append((*each.fault, advised, line, promised, f"{each.came:.2f}x"))
    return table(("kernel", "fault", "advised", "right line", "promised", "came"), rows, left=4)


def main() -> int:
    found: list[Diagnosis] = []
    for study in dict.fromkeys(study for study, _ in REPAIRS):
        repaired = told("advise", study, "kernel")["microseconds"]
        found += [diagnose(study, fault, repaired) for s, fault in REPAIRS if s == study]
    for title, some in (
        ("All", found),
        ("No rule was changed for these", [each for each in found if each.fault in ASIDE]),
    ):
        print(f"{title}: {len(some)} kernels\n", summary(some), "", sep="\n")
    print(faults(found))
    lined = [each for each in found if each.marked and each.promised]
    print(f"\nRight line: {share(sum(e.at in e.marked for e in lined), len(lined))}")
    beyond = [each.came / each.promised for each in found if each.promised]
    most = f"at most {max(beyond):.1f} times as much"
    print(f"More than was promised: {share(sum(b > 1 for b in beyond), len(beyond))}, {most}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
