"""TMA descriptors of tensors."""

from __future__ import annotations

from typing import Any

from workbench.errors import UsageError

SWIZZLED_BYTES = 128  # of a row of a box in shared memory


def tensor_map(tensor: Any, box: tuple[int, ...]) -> Any:
    """A TMA descriptor of ``tensor`` for copies of ``box``, to be passed to a kernel.

    ``tensor`` is a contiguous torch tensor of fp32, fp16 or bf16, ``box`` has as many numbers, in
    the same order. Rows of the box lie in shared memory under the 128-byte swizzle, so its last
    number is 32 in fp32 and 64 else; what is outside the tensor arrives as zeros. The tensor's rows
    begin at multiples of 16 bytes.
    """
    import torch

    # as_tensor_map is public; the enumerations of its arguments are not (as of cuda-core 1.2).
    from cuda.core import _tensor_map as tma
    from cuda.core.utils import StridedMemoryView

    types = {
        torch.float32: tma.TensorMapDataType.FLOAT32,
        torch.float16: tma.TensorMapDataType.FLOAT16,
        torch.bfloat16: tma.TensorMapDataType.BFLOAT16,
    }
    if tensor.dtype not in types:
        raise UsageError(
            f"a tensor map of {tensor.dtype}: only float32, float16 and bfloat16 are supported"
        )
    wide = SWIZZLED_BYTES // tensor.element_size()
    if len(box) != tensor.ndim or box[-1] != wide:
        raise UsageError(
            f"a tensor map of {tensor.ndim} dimensions of {tensor.dtype} for boxes of {box}",
            hint=f"a box has a number for each dimension, the last of them {wide}",
        )
    bits = tensor.view({2: torch.int16, 4: torch.int32}[tensor.element_size()])
    view = StridedMemoryView.from_any_interface(bits, stream_ptr=-1)
    return view.as_tensor_map(
        box_dim=box,
        data_type=types[tensor.dtype],
        swizzle=tma.TensorMapSwizzle.SWIZZLE_128B,
        l2_promotion=tma.TensorMapL2Promotion.L2_256B,
    )
