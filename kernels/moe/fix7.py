"""Persistent blocks, one per SM, which load the next tile while the last one is written."""

from workbench import cuda

run = cuda.variant("fix6", persistent=1).run
