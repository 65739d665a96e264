# mypy: ignore-errors
"""torch, three kernels."""


def run(weight, velocity, gradient):
    velocity.mul_(0.9).add_(gradient)
    weight.add_(velocity, alpha=-0.1)
    return velocity.abs().max()
