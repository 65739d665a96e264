"""What makes two reports not quite comparable, in words. Pure."""

from __future__ import annotations

from workbench.derive.matching import Matching
from workbench.ncu.report import OPTIONS, Report
from workbench.words import ABSENT, CLOCK_TOLERANCE


def warnings(before: Report, after: Report, matching: Matching) -> list[str]:
    """Differences of GPU, ncu, its options, and SM clocks that lie over 2 % apart."""
    said = [
        f"{report.name} holds launches of several GPUs: {', '.join(report.gpus)}"
        for report in (before, after)
        if len(report.gpus) > 1
    ]
    facts = [
        ("GPU", ", ".join(before.gpus), ", ".join(after.gpus)),
        ("ncu version", before.ncu, after.ncu),
        *((f"ncu {o}", before.options.get(o, ""), after.options.get(o, "")) for o in OPTIONS),
    ]
    said += [
        f"the reports differ in {what}: {one or ABSENT} and {other or ABSENT}"
        for what, one, other in facts
        if one != other
    ]
    worst = max(
        (
            (max(was, came) / min(was, came), pair)
            for pair in matching.pairs
            if (was := pair.before.sm_clock) and (came := pair.after.sm_clock)
        ),
        key=lambda item: item[0],
        default=None,
    )
    if worst and worst[0] > 1 + CLOCK_TOLERANCE:
        pair = worst[1]
        said.append(
            f"SM clocks are up to {100 * (worst[0] - 1):.1f} % apart ({pair.before.kernel}: "
            f"{pair.before.sm_clock:.3f} and {pair.after.sm_clock:.3f} GHz): compare cycles too"
        )
    renamed = [pair for pair in matching.pairs if pair.before.kernel != pair.after.kernel]
    if renamed:
        pair = renamed[0]
        said.append(
            f"kernels of different names are compared, since they are {pair.how}: "
            f"{pair.before.kernel} and {pair.after.kernel}"
        )
    return said
