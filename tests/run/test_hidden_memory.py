"""A variant's process does not write into the memory of those that time and judge it."""

from __future__ import annotations

from answers import python

CHILD = """
import os, sys
from workbench.children import hide_memory
from workbench.run.worker.startup import forked

if len(sys.argv) > 1:
    hide_memory()


def write():
    try:
        with open(f"/proc/{os.getppid()}/mem", "r+b", buffering=0):
            print("open")
    except PermissionError:
        print("refused")


os.waitpid(forked(write), 0)
"""


def test_a_fork_cannot_open_what_its_parent_hides() -> None:
    assert python("-c", CHILD, "hide").stdout == "refused\n"
    assert python("-c", CHILD).stdout in ("open\n", "refused\n")  # as the system has it
