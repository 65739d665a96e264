"""Tiles as wide as they have tokens, to 16."""

from workbench import cuda

run = cuda.variant("fix6", persistent=1, grain=16).run
