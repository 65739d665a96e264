"""TMA descriptors of tensors."""

from __future__ import annotations

from typing import Any

from workbench.errors import UsageError


def tensor_map(tensor: Any, box: tuple[int, ...]) -> Any:
    """A TMA descriptor of ``tensor`` for copies of ``box``, to be passed to a kernel.

    ``tensor`` is a contiguous torch tensor of fp16 or bf16, ``box`` has as many numbers, in the
    same order. Rows of the box lie in shared memory under the 128-byte swizzle, so its last
    number is 64; what is outside the tensor arrives as zeros.
    """
    import torch

    # as_tensor_map is public; the enumerations of its arguments are not (as of cuda-core 1.2).
    from cuda.core import _tensor_map as tma
    from cuda.core.utils import StridedMemoryView

    types = {
        torch.float16: tma.TensorMapDataType.FLOAT16,
        torch.bfloat16: tma.TensorMapDataType.BFLOAT16,
    }
    if tensor.dtype not in types:
        raise UsageError(f"a tensor map of {tensor.dtype}: only float16 and bfloat16 are supported")
    view = StridedMemoryView.from_any_interface(tensor.view(torch.int16), stream_ptr=-1)
    return view.as_tensor_map(
        box_dim=box,
        data_type=types[tensor.dtype],
        swizzle=tma.TensorMapSwizzle.SWIZZLE_128B,
        l2_promotion=tma.TensorMapL2Promotion.L2_256B,
    )
