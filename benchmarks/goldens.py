"""Write the golden files of the tests again: reports, reference, lessons and screens.

python -m benchmarks.goldens      then look at what changed
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks import lessons, reference

from workbench.cli.main import main as workbench
from workbench.study.workspace import find_workspace

ROOT = Path(__file__).resolve().parents[1]
STUDIES = ("attention", "attention_served", "moe", "softmax", "transpose")


def main() -> int:
    for study in STUDIES:
        workbench(["report", "--study", study, "--project", str(ROOT)])
    reference.main()
    lessons.PAGE.write_text(lessons.page(find_workspace(ROOT)), "utf-8")
    tests = ["tests/test_golden.py", "tests/test_terminal.py"]
    environment = {**os.environ, "WORKBENCH_REWRITE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
