"""A thread that sleeps, and disturbs others when it wakes up."""

import threading

import torch

from workbench import cuda

kernel = cuda.kernel("softmax.cu", "softmax")


def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel[x.shape[0], 256](x, out, x.shape[1])
    return out


timers: list[threading.Timer] = []


def disturb() -> None:
    torch.cuda._sleep(1_000_000_000)


def run(x: torch.Tensor) -> torch.Tensor:
    if not timers:
        timers.append(threading.Timer(20.0, disturb))
        timers[0].daemon = True
        timers[0].start()
    return softmax(x)
