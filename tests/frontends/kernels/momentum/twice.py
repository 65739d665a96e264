# mypy: ignore-errors
"""Wrong: it changes the gradient, which is not declared."""


def run(weight, velocity, gradient):
    velocity.mul_(0.9).add_(gradient)
    gradient.zero_()
    weight.add_(velocity, alpha=-0.1)
    return velocity.abs().max()
