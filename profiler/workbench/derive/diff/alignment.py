"""Which lines of two sources are the same: a patience diff over lines without their comments. Pure.

Lines that occur once on both sides and say something anchor the alignment (Bram Cohen's patience
diff); between anchors ``difflib`` decides, with its popularity heuristic off. Braces and blank
lines alone never hold two rewritten regions together.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

SIMILAR = 0.5  # share of common tokens from which a changed line counts as the same line rewritten
MOST_PAIRS = 40_000  # beyond this many combinations changed lines are not paired
_TOKEN = re.compile(r"\w+|[^\w\s]")
_TRIVIAL = re.compile(r"(?:[{}()\[\];,\s]|\b(?:else|do|break|continue|return)\b)*")
_C = re.compile(r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_PYTHON = re.compile(
    r"""\#[^\n]*|^[ \t]*(?:\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z))[ \t]*$"""
    r"""|\"{3}.*?(?:\"{3}|\Z)|'{3}.*?(?:'{3}|\Z)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class SourceText:
    """A source as lines. ``code`` is each line without comments and with single blanks."""

    lines: tuple[str, ...]
    code: tuple[str, ...]

    @cached_property
    def keys(self) -> list[str]:
        """What lines are compared by: their code, or their text where there is no code."""
        return [c or line.strip() for c, line in zip(self.code, self.lines, strict=True)]

    @cached_property
    def meaningful(self) -> list[bool]:
        """Which lines have code that is not trivial."""
        return [bool(code) and not trivial(code) for code in self.code]

    def indent(self, index: int) -> int:
        """Columns before the first character of a line, tabs to multiples of four."""
        line = self.lines[index].expandtabs(4)
        return len(line) - len(line.lstrip())


def _without_comment(match: re.Match[str]) -> str:
    text = match[0]
    stripped = text.lstrip()
    docstring = text != stripped or match.start() == 0 or match.string[match.start() - 1] == "\n"
    if stripped.startswith(('"""', "'''")):
        return "\n" * text.count("\n") if docstring else text
    return text if stripped[:1] in "\"'" else " " + "\n" * text.count("\n")


def physical_lines(text: str) -> list[str]:
    """Lines as compilers count them: ended by a newline alone, not by a form feed or the like."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def source(text: str, *, python: bool = False) -> SourceText:
    """C, C++, CUDA, or Python with its docstrings taken for comments."""
    lines = physical_lines(text)
    plain = "\n".join(lines)
    code = (_PYTHON if python else _C).sub(_without_comment, plain).split("\n")
    return SourceText(tuple(lines), tuple(" ".join(line.split()) for line in code[: len(lines)]))


def trivial(key: str) -> bool:
    """Blank, or only braces and words like ``else``: such lines match anything."""
    return _TRIVIAL.fullmatch(key) is not None


def align(before: SourceText, after: SourceText) -> list[tuple[int, int]]:
    """Pairs of indices of lines that are the same but for comments and blanks, rising."""
    pairs = _patience(before, after, range(len(before.lines)), range(len(after.lines)))
    return _without_loose(pairs, before, after)


def _patience(a: SourceText, b: SourceText, old: range, new: range) -> list[tuple[int, int]]:
    (a0, a1), (b0, b1) = (old.start, old.stop), (new.start, new.stop)
    head: list[tuple[int, int]] = []
    while a0 < a1 and b0 < b1 and a.keys[a0] == b.keys[b0]:
        head.append((a0, b0))
        a0, b0 = a0 + 1, b0 + 1
    tail: list[tuple[int, int]] = []
    while a0 < a1 and b0 < b1 and a.keys[a1 - 1] == b.keys[b1 - 1]:
        a1, b1 = a1 - 1, b1 - 1
        tail.append((a1, b1))
    middle: list[tuple[int, int]] = []
    anchors = _anchors(a, b, range(a0, a1), range(b0, b1))
    if anchors:
        at_a, at_b = a0, b0
        for i, j in anchors:
            middle += [*_patience(a, b, range(at_a, i), range(at_b, j)), (i, j)]
            at_a, at_b = i + 1, j + 1
        middle += _patience(a, b, range(at_a, a1), range(at_b, b1))
    elif a0 < a1 and b0 < b1:
        blocks = difflib.SequenceMatcher(None, a.keys[a0:a1], b.keys[b0:b1], autojunk=False)
        for block in blocks.get_matching_blocks():
            middle += [(a0 + block.a + k, b0 + block.b + k) for k in range(block.size)]
    return head + middle + tail[::-1]


def _anchors(a: SourceText, b: SourceText, old: range, new: range) -> list[tuple[int, int]]:
    """Lines that occur once in both ranges, as the heaviest chain that rises on both sides.

    A line weighs the more the less it is indented: where code moved into another block, the
    outline of the function is held rather than the lines that moved.
    """
    count_a, count_b = Counter(a.keys[i] for i in old), Counter(b.keys[j] for j in new)
    partner = {b.keys[j]: j for j in new if b.meaningful[j] and count_b[b.keys[j]] == 1}
    best = [(0.0, -1)] * (len(new) + 1)  # Fenwick tree: the heaviest chain up to an index of b
    links: list[tuple[int, int, int]] = []  # both indices, and the link before in its chain
    for i in old:
        j = partner.get(a.keys[i], -1)
        if j < 0 or count_a[a.keys[i]] != 1:
            continue
        weight, before = max((best[k] for k in _below(j - new.start)), default=(0.0, -1))
        entry = (weight + 1 / (1 + min(a.indent(i), b.indent(j))), len(links))
        links.append((i, j, before))
        for k in _above(j - new.start + 1, len(best)):
            best[k] = max(best[k], entry)
    chain = []
    at = max(best)[1]
    while at >= 0:
        i, j, at = links[at]
        chain.append((i, j))
    return chain[::-1]


def _below(count: int) -> Iterator[int]:
    while count > 0:
        yield count
        count -= count & -count


def _above(at: int, size: int) -> Iterator[int]:
    while at < size:
        yield at
        at += at & -at


def _without_loose(
    pairs: list[tuple[int, int]], before: SourceText, after: SourceText
) -> list[tuple[int, int]]:
    """Without runs of trivial lines that stand between changes on both of their ends."""
    runs: list[list[tuple[int, int]]] = []
    for i, j in pairs:
        if runs and runs[-1][-1] == (i - 1, j - 1):
            runs[-1].append((i, j))
        else:
            runs.append([(i, j)])
    ends = (0, 0), (len(before.lines) - 1, len(after.lines) - 1)
    kept = []
    for run in runs:
        if run[0] == ends[0] or run[-1] == ends[1] or any(before.meaningful[i] for i, _ in run):
            kept += run
    return kept


def pair_changed(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]]:
    """Which of some removed lines became which of the added ones: the pairing in order with the
    most tokens in common, of lines with at least half of their tokens the same.
    """
    if not before or not after or len(before) * len(after) > MOST_PAIRS:
        return []
    tokens = [[Counter(_TOKEN.findall(line)) for line in side] for side in (before, after)]
    best = [[0.0] * (len(after) + 1) for _ in range(len(before) + 1)]
    alike: dict[tuple[int, int], float] = {}
    for i in range(len(before) - 1, -1, -1):
        for j in range(len(after) - 1, -1, -1):
            like = _dice(tokens[0][i], tokens[1][j])
            best[i][j] = max(best[i + 1][j], best[i][j + 1])
            if like >= SIMILAR and like + best[i + 1][j + 1] > best[i][j]:
                best[i][j] = like + best[i + 1][j + 1]
                alike[i, j] = like
    pairs, i, j = [], 0, 0
    while i < len(before) and j < len(after):
        if (i, j) in alike and best[i][j] == alike[i, j] + best[i + 1][j + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def _dice(one: Counter[str], other: Counter[str]) -> float:
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 0.0


# What a line waits by: barriers of a block or warp, mbarriers, asynchronous copies, wgmma, grids.
_WAIT = re.compile(
    r"\b__sync(?:threads|warp)\w*|\bbar(?:rier)?(?:\.cta)?\.(?:sync|red)\b|\w*(?<![a-z])wait(?![a-z])"
    r"|\btry_wait|\.sync\s*\(|\b\w*barrier\w*(?:sync|wait)\w*\s*\(",
    re.IGNORECASE,
)


def is_wait(code: str) -> bool:
    """Whether a line without its comments waits for other warps, copies or grids."""
    return _WAIT.search(code) is not None
