"""The gates in which the counters testify. Pure.

ncu runs a variant in another process and reads hardware: which kernels ran, for how long, and how
many operations and bytes they did. A timing that its own capture contradicts is a wrong timing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from workbench.derive.sums import added
from workbench.judge.case import Case
from workbench.judge.durations import duration_gate
from workbench.judge.gates import Gate
from workbench.judge.work_done import work_gate
from workbench.words import ABSENT, GateState, NodeKind

if TYPE_CHECKING:
    from workbench.evidence.records import GraphNode
    from workbench.ncu.capture import Launched

KERNELS, OUTPUTS, COMPARED = "kernels", "timed outputs", "compared with"


def testimony(case: Case) -> tuple[Gate, ...]:
    """All gates in which something testifies of a variant."""
    return kernels_gate(case), duration_gate(case), work_gate(case), outputs_gate(case)


def compared_gates(compared: Iterable[Case]) -> tuple[Gate, ...]:
    """Failed, of each whose time is contradicted, since a ratio over a wrong time is wrong; none
    of the others.
    """
    return tuple(
        Gate(COMPARED, GateState.FAILED, f"{case.variant} has a wrong time: {why}")
        for case in compared
        if (why := contradiction(case))
    )


def contradiction(case: Case) -> str:
    """Why the time of a variant cannot be believed, "" where nothing speaks against it."""
    gate = duration_gate(case)
    return gate.why if gate.state == GateState.FAILED else ""


def kernels_gate(case: Case) -> Gate:
    """The kernels of the timed graph are those that the capture saw: names, grids, blocks."""
    nodes, launched = case.nodes, case.launched
    if nodes is None or launched is None:
        return Gate(KERNELS, GateState.OPEN, ABSENT)
    if not nodes:
        return Gate(KERNELS, GateState.FAILED, "the timed graph is empty: it launched nothing")
    if case.timing is not None and case.variant in case.timing.unsteady:
        why = "its calls launched other nodes in one session than in another"
        return Gate(KERNELS, GateState.FAILED, why)
    timed = Counter(_node(node) for node in nodes if node.kind == NodeKind.KERNEL)
    seen = Counter(_launch(launch) for launch in launched)
    told = []
    if alone := timed - seen:
        told.append(f"timed and not captured: {_listed(alone)}")
    if alone := seen - timed:
        told.append(f"captured and not timed: {_listed(alone)}")
    if told:
        return Gate(KERNELS, GateState.FAILED, "; ".join(told))
    others = Counter(node.kind.value for node in nodes if node.kind != NodeKind.KERNEL)
    beside = "".join(f", and {_count(n, kind)}" for kind, n in sorted(others.items()))
    why = f"{_count(timed.total(), 'kernel')} timed as captured{beside}"
    return Gate(KERNELS, GateState.PASSED, why)


Signature = tuple[str, tuple[int, ...], tuple[int, ...]]


def _node(node: GraphNode) -> Signature:
    return node.kernel, node.grid, node.block


def _launch(launch: Launched) -> Signature:
    return launch.mangled, launch.grid or (), launch.block or ()


def _listed(found: Counter[Signature]) -> str:
    texts = []
    for (kernel, grid, block), number in sorted(found.items()):
        extents = [" x ".join(map(str, extent)) for extent in (grid, block)]
        times = f"{number} times " if number > 1 else ""
        texts.append(f"{times}{kernel} ({extents[0]} blocks of {extents[1]} threads)")
    return ", ".join(texts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def outputs_gate(case: Case) -> Gate:
    """The outputs of timed calls were right."""
    sessions = case.timing.sessions if case.timing else ()
    audits = [audit for s in sessions for audit in s.audits if audit.variant == case.variant]
    if not audits:
        return Gate(OUTPUTS, GateState.OPEN, ABSENT)
    wrong = next((audit.why for audit in audits if audit.why), "")
    if wrong:
        return Gate(OUTPUTS, GateState.FAILED, f"wrong while it was timed: {wrong}")
    number = int(added(audit.outputs for audit in audits))
    return Gate(OUTPUTS, GateState.PASSED, f"{_count(number, 'output')} of timed calls were right")
