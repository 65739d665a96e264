"""Whether the advice names a planted fault: the tables of docs/advice.md and planted/README.md.

The kernels are in benchmarks/planted, a workspace with recorded evidence, packed in two
archives: `python -m tools.folders` unpacks and packs them. Every fault has the kinds
of change that repair it, written before the first recording. Its lines are marked ``// fault:
NAME``, or listed in faults.toml for a kernel without comments. Without a line the fault is of the
launch.

python -m benchmarks.diagnosis
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, permutations
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple

from benchmarks.claims import at_least, at_most
from tools.folders import unpacked_workspace
from tools.pages import answer, table

PLANTED = Path(__file__).parent / "planted"
TOP = 3
DRAWS = 10_000
FAULTS = tomllib.loads((PLANTED / "faults.toml").read_text("utf-8"))
NVIDIA, LINES = FAULTS.pop("ncu"), FAULTS.pop("lines")
REPAIRS = {(study, fault): k for study, faults in FAULTS.items() for fault, k in faults.items()}
UNMARKED = [(study, fault) for study, fault in REPAIRS if study in LINES]  # written after the rules


class Diagnosis(NamedTuple):
    """What was said of one fault; ``lines`` are file lines, ``came`` the time over the repaired
    kernel's.
    """

    fault: tuple[str, str]
    repairs: frozenset[str]
    advised: tuple[str, ...]
    nvidia: tuple[frozenset[str], ...]
    lines: Mapping[str, int | None]
    marked: frozenset[int]
    came: float

    @property
    def at(self) -> int | None:
        """The line beside the first kind of change that repairs it."""
        return next((self.lines[kind] for kind in self.advised if kind in self.repairs), None)


def told(verb: str, study: str, variant: str) -> dict[str, Any]:
    return answer(
        verb, variant, "--study", study, "--project", str(unpacked_workspace(PLANTED)), "--json"
    )


def kinds_of(title: str) -> frozenset[str]:
    return frozenset(k for words, kinds in NVIDIA.items() if words in title for k in kinds.split())


def diagnose(study: str, fault: str, repaired: float) -> Diagnosis:
    unmarked = (study, fault) in UNMARKED
    variant = fault if unmarked else f"kernel[fault={fault}]"
    found = told("advise", study, variant)
    repairs = frozenset(REPAIRS[study, fault].split())
    advice = found["advice"] or []
    kernel = unpacked_workspace(PLANTED) / "kernels" / study / "kernel.cu"
    source = kernel.read_text().splitlines()
    marked = [n for n, line in enumerate(source, 1) if line.endswith(f"// fault: {fault}")]
    rules = [limit for limit in told("show", study, variant)["bottlenecks"] if limit["rule"]]
    rules.sort(key=lambda rule: -(rule["estimated_speedup_pct"] or 0))
    return Diagnosis(
        (study, fault),
        repairs,
        tuple(each["change"] for each in advice),
        tuple(kinds_of(rule["title"]) for rule in rules[:TOP]),
        {each["change"]: each["line"] and each["line"]["line"] for each in advice},
        frozenset(LINES[study].get(fault, []) if unmarked else marked),
        found["microseconds"] / repaired,
    )


def share(hits: float, of: int) -> str:
    text = f"{hits:.0f}" if hits == int(hits) else f"{hits:.1f}"
    return f"{text} of {of}"


def hits(found: Sequence[Diagnosis], top: int) -> int:
    return sum(bool(each.repairs & set(each.advised[:top])) for each in found)


def shuffled(found: Sequence[Diagnosis], top: int) -> float:
    """Each kernel with the advice of every other: the mean."""
    pairs = permutations(found, 2)
    right = sum(bool(a.repairs & set(b.advised[:top])) for a, b in pairs)
    return right / (len(found) - 1)


def nvidia(found: Sequence[Diagnosis], top: int) -> int:
    return sum(any(each.repairs & kinds for kinds in each.nvidia[:top]) for each in found)


def constant(found: Sequence[Diagnosis], top: int) -> int:
    """The same kinds for every kernel: those that hit most, picked in hindsight."""
    kinds = sorted({kind for each in found for kind in each.repairs})
    return max(
        sum(bool(each.repairs & {*picked}) for each in found)
        for picked in combinations(kinds, min(top, len(kinds)))
    )


def gained(found: Sequence[Diagnosis], top: int) -> float:
    """The geometric mean of what the repairs gain that were advised; 1 for any other."""
    return geometric_mean([each.came if hits([each], top) else 1.0 for each in found])


def exact(hit: int, of: int) -> str:
    """The 95 % interval of a share (Clopper and Pearson), in percent."""
    low, high = at_least(hit, of, 0.975), at_most(hit, of, 0.975)
    return f"{100 * low:.0f} to {100 * high:.0f} %"


def ahead(found: Sequence[Diagnosis]) -> str:
    """How many more the workbench names among three than ncu: the bootstrap over kernels."""
    drawing = random.Random(0)
    more = [hits([each], TOP) - nvidia([each], TOP) for each in found]
    means = sorted(sum(drawing.choices(more, k=len(more))) for _ in range(DRAWS))
    low, high = means[round(0.025 * DRAWS)], means[round(0.975 * DRAWS) - 1]
    return f"Ahead of ncu: {sum(more)} of {len(found)}, 95 % interval {low} to {high}"


KINDS: tuple[tuple[str, Callable[[Sequence[Diagnosis], int], float]], ...] = (
    ("of the workbench", hits),
    ("the same, shuffled among the kernels", shuffled),
    ("the best constant answer", constant),
    ("the largest estimates of ncu", nvidia),
)


def summary(groups: Mapping[str, Sequence[Diagnosis]]) -> str:
    """How often each advice has the right kind first, or among three, by group."""
    heads, rows = ["advice"], [[name] for name, _ in KINDS]
    for title, found in groups.items():
        heads += [f"{title}: first", f"{title}: among three"]
        for row, (_, count) in zip(rows, KINDS, strict=True):
            row += [share(count(found, top), len(found)) for top in (1, TOP)]
    return "\n".join([table(heads, rows), "", *map(certainty, groups, groups.values())])


def certainty(title: str, found: Sequence[Diagnosis]) -> str:
    n = len(found)
    return (
        f"- {title}: among three, 95 % interval {exact(hits(found, TOP), n)}; "
        f"ncu {exact(nvidia(found, TOP), n)}. {ahead(found)}. "
        f"Mean gain of the repairs {geometric_mean([each.came for each in found]):.2f}x; "
        f"of those named first {gained(found, 1):.2f}x, among three {gained(found, TOP):.2f}x."
    )


def faults(found: Sequence[Diagnosis]) -> str:
    rows = []
    for each in found:
        kinds = [f"**{kind}**" if kind in each.repairs else kind for kind in each.advised[:TOP]]
        line = "no line" if not each.marked else "yes" if each.at in each.marked else "no"
        advised = ", ".join(kinds) or "nothing"
        rows.append((*each.fault, advised, line, f"{each.came:.2f}x"))
    return table(("kernel", "fault", "advised", "right line", "gain of the repair"), rows, left=4)


def main() -> None:
    found: list[Diagnosis] = []
    for study in dict.fromkeys(study for study, _ in REPAIRS):
        repaired = told("advise", study, "kernel")["microseconds"]
        found += [diagnose(study, fault, repaired) for s, fault in REPAIRS if s == study]
    late = [each for each in found if each.fault in UNMARKED]
    print(summary({"all": found, "written after the rules": late}), end="\n\n")
    print(faults(found))
    lined = [each for each in found if each.marked and each.at]
    print(f"\nRight line: {share(sum(e.at in e.marked for e in lined), len(lined))}")


if __name__ == "__main__":
    main()
