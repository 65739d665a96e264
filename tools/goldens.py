"""Write the golden files of the tests again: reports, reference, lessons and screens.

python -m tools.goldens      then look at what changed
"""

from __future__ import annotations

import os
import subprocess
import sys

from tools import lessons, reference
from tools.pages import ROOT, write

from workbench.cli.main import main

STUDIES = ("attention", "attention_served", "moe", "softmax", "transpose")

if __name__ == "__main__":
    for study in STUDIES:
        main(["report", "--study", study, "--project", str(ROOT)])
    write(reference.written() | lessons.written())
    environment = {**os.environ, "WORKBENCH_REWRITE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "tests/render/test_terminal.py"]
    sys.exit(subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode)
