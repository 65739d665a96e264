# mypy: ignore-errors
"""A step of SGD with momentum, in place, and the norms of both."""

from workbench.study.values import Shape, Tolerance, Work

shapes = {"small": Shape(n=1 << 20), "large": Shape(n=1 << 26, captured=False)}
default_shape = "small"
tolerance = Tolerance(absolute=1e-4, relative=1e-5)
in_place = ("weight", "velocity")


def inputs(shape, generator):
    import torch

    def draw():
        return torch.randn(shape.n, generator=generator, device=generator.device)

    return {"weight": draw(), "velocity": draw(), "gradient": draw()}


def reference(weight, velocity, gradient):
    velocity = 0.9 * velocity.double() + gradient
    weight = weight - 0.1 * velocity
    return {"weight": weight, "velocity": velocity, "steepest": velocity.abs().max()}


def work(shape):
    return Work(flops=4 * shape.n, bytes=20 * shape.n, dtype="float32")
