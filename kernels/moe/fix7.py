"""As many blocks as SMs, each with the next tile on its way while the last is written."""

from workbench import cuda

run = cuda.variant("fix6", persistent=1).run
