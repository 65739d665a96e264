# mypy: ignore-errors
"""The gradients of a layer's inputs."""

from workbench.study.values import Shape, Tolerance, Work

shapes = {"small": Shape(rows=4096, columns=1024)}
default_shape = "small"
tolerance = Tolerance(absolute=1e-4, relative=1e-5)


def inputs(shape, generator):
    import torch

    def draw(*size, grad=True):
        return torch.randn(size, generator=generator, device=generator.device, requires_grad=grad)

    rows, columns = shape.rows, shape.columns
    return {"x": draw(rows, columns), "w": draw(columns), "dy": draw(rows, columns, grad=False)}


def reference(x, w, dy):
    import torch

    x, w = x.double(), w.double()
    return torch.autograd.grad((x * w).sigmoid(), (x, w), dy.double())


def work(shape):
    n = shape.rows * shape.columns
    return Work(flops=6 * n, bytes=12 * n, dtype="float32")
