"""Arms the verbs of a server (``killing``), where a test asks for it."""

import os
import sys
from pathlib import Path

if "WORKBENCH_KILL" in os.environ and "workbench" in sys.orig_argv:
    import killing

    counts, instant, victim = os.environ["WORKBENCH_KILL"].split("\t")
    killing.arm(Path(counts), int(instant), victim)
