# mypy: ignore-errors
"""x times sigmoid(x), of every element."""

from workbench.study.values import Shape, Tolerance, Work

shapes = {"large": Shape(n=1 << 22)}
default_shape = "large"
tolerance = Tolerance(absolute=1e-5, relative=1e-6)


def inputs(shape, generator):
    import torch

    return {"x": torch.randn(shape.n, generator=generator, device=generator.device)}


def reference(x):
    return x.double().sigmoid() * x


def work(shape):
    return Work(flops=4 * shape.n, bytes=8 * shape.n, dtype="float32")
