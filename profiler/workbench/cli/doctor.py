"""``doctor``: what works on a machine."""

from __future__ import annotations

from workbench.app.doctor import Diagnosis, DoctorRow, diagnosis
from workbench.cli.options import DoctorOptions
from workbench.cli.streams import show
from workbench.cli.waiting import telling
from workbench.errors import EnvironmentLacks
from workbench.render import doc
from workbench.words import grouped


def run(options: DoctorOptions) -> int:
    """Exit code 3 where nothing can be read."""
    with telling("waiting for the tests of ncu, compiler and GPU"):
        machine = diagnosis()
    show(options, machine)
    return 0 if machine.works["read"] else EnvironmentLacks.exit_code


def brief(result: Diagnosis) -> dict[str, object]:
    """Return what works, and each row that does not with its way out."""
    from workbench.render.in_short import (
        command,
        short,  # reads records: not without msgspec
    )

    return {
        "works": dict(result.works),
        "conclusion": result.conclusion,
        "problems": [
            {"name": each.name, "result": each.result, "found": short(each.found), "fix": each.fix}
            for each in result.rows
            if each.fix
        ],
        **command("", "list"),
    }


FINDINGS: list[doc.Field[DoctorRow]] = [
    doc.Field("result", "", lambda f: f"[{f.result}]"),
    doc.Field("name", "what", lambda f: f.name),
    doc.Field("found", "found", lambda f: f.found, rank=1),
]


def blocks(result: Diagnosis, _: object) -> list[doc.Block]:
    """Return what there is, what works with it, and how to get what is missing."""
    shown: list[doc.Block] = [
        doc.table("findings", FINDINGS, result.rows, key=lambda f: f.name),
        doc.paragraph(result.conclusion),
    ]
    fixes = grouped((f.fix, f.name) for f in result.rows if f.fix)
    helps = [
        doc.line(doc.strong(", ".join(names)), ": ", doc.authored(fix))
        for fix, names in fixes.items()
    ]
    if helps:
        shown[1:1] = [doc.paragraph("What would help, first things first:"), doc.bullets(helps)]
    return shown
