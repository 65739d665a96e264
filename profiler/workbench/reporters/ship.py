"""``ship``: a package that was written."""

from __future__ import annotations

from workbench.app.ship import Shipment, capability
from workbench.app.target import shown_path


def lines(result: Shipment) -> list[str]:
    shipped = result.shipped
    said = [
        f"shipped {shipped.variant} of {shipped.study}, {shipped.verdict}: "
        f"{shown_path(result.folder)}, {len(shipped.files)} files"
    ]
    time = next((t for t in shipped.times if t.shape == shipped.judged_at), None)
    if time is not None and time.ratio is not None:
        said.append(f"  {time.ratio:.3g}x of {time.reference} at {time.shape}, recorded")
    if result.archs:
        archs = ", ".join(map(capability, result.archs))
        said.append(f"  to be built for compute capability {archs}: kernel-builder, or build.py")
    if shipped.keeps:
        said.append(
            "  one copy of its module per stream, because it may keep state from call to "
            f"call: {'; '.join(shipped.keeps)}"
        )
    if "LICENSE" not in shipped.files:
        said.append("  no licence was found in the workspace: nobody may use it without one")
    return said
