"""An interpreter that imports what every worker needs, then waits to become one of them: ``python
-m workbench.run.worker.spare``, named on stdin.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from contextlib import suppress

from workbench.run.protocol import JOB, LOG
from workbench.run.worker.startup import import_libraries


def become(folder: str, module: str, environment: dict[str, str]) -> None:
    """Run ``python -m MODULE job.json`` in the folder, with its log and environment."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    null, log = os.open(os.devnull, os.O_RDONLY), os.open(LOG, os.O_WRONLY | os.O_CREAT)
    for descriptor, opened in ((0, null), (1, log), (2, log)):
        os.dup2(opened, descriptor)
    sys.argv, sys.path[0] = [module, JOB], folder
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    with suppress(Exception):  # the worker that it becomes says why
        import_libraries()
    if line := sys.stdin.readline():  # none where nobody needs it any more
        become(*json.loads(line))


if __name__ == "__main__":
    main()
