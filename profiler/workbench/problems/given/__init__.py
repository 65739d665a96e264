"""What the modules of a study made from a problem call: the user's files, inputs, references.

Imported without torch too, so every function imports it for itself.
"""

from workbench.problems.given.annotated import Annotated
from workbench.problems.given.calls import (
    Dotted,
    Extension,
    File,
    Network,
    accepted,
    afterwards,
    by_name,
    call,
    called,
    compared,
    compiled,
    exact,
    one,
    plain,
    put,
)
from workbench.problems.given.inputs import (
    STRUCTURE,
    Empty,
    case,
    listed,
    made,
    named,
    seeded,
    structured,
    without,
    workload,
)

__all__ = [
    "STRUCTURE",
    "Annotated",
    "Dotted",
    "Empty",
    "Extension",
    "File",
    "Network",
    "accepted",
    "afterwards",
    "by_name",
    "call",
    "called",
    "case",
    "compared",
    "compiled",
    "exact",
    "listed",
    "made",
    "named",
    "one",
    "plain",
    "put",
    "seeded",
    "structured",
    "without",
    "workload",
]
