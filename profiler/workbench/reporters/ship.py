"""``ship``: a package that was written."""

from __future__ import annotations

from workbench.app.ship import Shipment
from workbench.app.shipped_subject import other_code
from workbench.app.target import shown_path


def lines(result: Shipment) -> list[str]:
    subject, shipped = result.subject, result.shipped
    place = shown_path(result.folder)
    archs = f" for {', '.join(subject.archs)}" if shipped.cubins else ""
    said = [
        f"shipped {shipped.variant} of {shipped.study}, {shipped.verdict}: {place}",
        f"  {len(shipped.files)} files, {len(shipped.cubins)} cubins{archs}",
    ]
    at = next((t for t in shipped.times if t.shape == shipped.judged_at), None)
    if at is not None and at.ratio is not None:
        said.append(f"  {at.ratio:.3g}x of {at.reference} at {at.shape}, recorded")
    if shipped.keeps:
        said.append(
            "  one copy of its module per stream, because it may keep state from call to "
            f"call: {'; '.join(shipped.keeps)}"
        )
    if other := other_code(shipped):
        said.append(f"  {other}: time the package where it will run")
    if "LICENSE" not in shipped.files:
        said.append("  no licence was found in the workspace: nobody may use it without one")
    return said
