"""The combine kernel loads all rows of a token before it adds them."""

from workbench import cuda

run = cuda.variant("fix6", persistent=1, grain=16, together=1).run
