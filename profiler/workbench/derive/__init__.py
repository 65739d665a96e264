"""Figures, speedups and roofline points from tables. Pure."""
