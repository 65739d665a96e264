"""Forks a stream from the current one, and never joins it."""

import torch

from workbench import cuda

kernel = cuda.kernel("softmax.cu", "softmax")


streams: list[torch.cuda.Stream] = []


def run(x: torch.Tensor) -> torch.Tensor:
    if not streams:
        streams.append(torch.cuda.Stream())
    out = torch.empty_like(x)
    streams[0].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(streams[0]):
        kernel[x.shape[0], 256](x, out, x.shape[1])
    return out
