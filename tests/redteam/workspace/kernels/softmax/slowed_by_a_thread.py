"""Keeps the card busy with something else, from a thread."""

import threading
import time

import torch

from workbench import cuda

kernel = cuda.kernel("softmax.cu", "softmax")

threads: list[threading.Thread] = []


def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel[x.shape[0], 256](x, out, x.shape[1])
    return out


def disturb() -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        some = torch.randn(1024, 1024, device="cuda")
        while True:
            some = (some @ some).clamp(-1, 1)
            time.sleep(1e-4)


def run(x: torch.Tensor) -> torch.Tensor:
    if not threads:
        threads.append(threading.Thread(target=disturb, daemon=True))
        threads[0].start()
    return softmax(x)
