# mypy: ignore-errors
"""Wrong: the next call adds to what this one leaves."""


def run(x, w, dy):
    (x * w).sigmoid().backward(dy)
    return x.grad.clone(), w.grad.clone()
