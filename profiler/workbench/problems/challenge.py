"""``challenge.py`` beside a solution, as LeetGPU has it: a class with inputs and reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench.errors import UsageError
from workbench.problems.user_files import Versus, classes, literal, parsed, together

USUAL = ("solve", "solution")  # of LeetGPU and of Tensara
FILE, BASE = "challenge.py", "core/challenge_base.py"
STAND_IN = b"""class ChallengeBase:
    def __init__(self, *arguments, device="cuda", **keywords):
        self.device = device
        vars(self).update(keywords)
"""


def challenge_of(
    solution: Path, names: Sequence[str], outputs: Sequence[str] = ()
) -> Versus | None:
    """The reference, with inputs, of a function with these parameters, of which ``outputs`` are
    written; None where there is none beside it. Raises UsageError for a file without a class that
    gives tests.
    """
    path = solution.with_name(FILE)
    if not path.is_file():
        return None
    nodes = classes(parsed(path)).items()
    by_name = {name: {getattr(line, "name", "") for line in node.body} for name, node in nodes}
    task = next((name for name, inside in by_name.items() if "reference_impl" in inside), None)
    if task is None:
        hint = "give the inputs with --input and the reference with --vs"
        raise UsageError(f"{path} has no class with reference_impl()", hint=hint)
    base = next((p / BASE for p in path.parents if (p / BASE).is_file()), None)
    files = {BASE: base.read_bytes() if base else STAND_IN, "core/__init__.py": b""}
    return Versus(
        f"{FILE}:{task}",
        f'_challenge = given.Challenge(given.File(__file__, "{FILE}"), "{task}")',
        "_challenge(inputs)",
        files=together(path) | files,
        made=f"_challenge.inputs({literal(names)}, {literal(outputs)}, generator)",
    )
