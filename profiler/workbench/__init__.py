"""Kernel optimisation with evidence: build, check, time, profile, compare, report.

A study imports ``Shape``, ``Tolerance`` and ``Work`` from here; a variant imports
``workbench.cuda``. Neither import needs a GPU, torch or pandas.
"""

from workbench.study.model import Shape, Tolerance, Work

__version__ = "0.1.0"
__all__ = ["Shape", "Tolerance", "Work", "__version__"]
