"""Tile width: the number of tokens rounded up to 16, instead of always 128."""

from workbench import cuda

run = cuda.variant("fix6", persistent=1, grain=16).run
