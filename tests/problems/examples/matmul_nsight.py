"""Two ways to multiply, as one writes it for nsight-python."""

import itertools

import nsight
import torch

sizes = [2**power for power in (10, 11)]
configs = list(itertools.product(sizes, [torch.float16]))


@nsight.annotate("einsum")
def by_einsum(a, b):
    return torch.einsum("ij,jk->ik", a, b)


@nsight.analyze.plot("matmul.png")
@nsight.analyze.kernel(configs=configs, runs=10, normalize_against="matmul")
def multiply(n, dtype):
    a = torch.randn(n, n, device="cuda", dtype=dtype)
    b = torch.randn(n, n, device="cuda", dtype=dtype)

    with nsight.annotate("matmul"):
        _ = a @ b

    _ = by_einsum(a, b)


if __name__ == "__main__":
    multiply()
