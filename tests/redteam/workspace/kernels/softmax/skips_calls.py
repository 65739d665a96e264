"""Only every other call works, which is counted on the GPU."""

import torch

from workbench import cuda

kernel = cuda.kernel("softmax.cu", "softmax")
count = cuda.kernel("skips_calls.cu", "count")
sometimes = cuda.kernel("skips_calls.cu", "softmax_sometimes")


def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel[x.shape[0], 256](x, out, x.shape[1])
    return out


calls: list[torch.Tensor] = []


def run(x: torch.Tensor) -> torch.Tensor:
    if not torch.cuda.is_current_stream_capturing():
        return softmax(x)
    if not calls:
        calls.append(torch.zeros(1, dtype=torch.int32, device=x.device))
    out = torch.empty_like(x)
    count[1, 1](calls[0])
    sometimes[x.shape[0], 256](x, out, calls[0], x.shape[1])
    return out
