"""TMA descriptors of tensors."""

from __future__ import annotations

from typing import Any

from workbench.errors import UsageError

SWIZZLED_BYTES, PIECE = 128, 16  # of a row of a box in shared memory
MOST = 256  # along one dimension of a box


def tensor_map(tensor: Any, box: tuple[int, ...], *, swizzled: bool = True) -> Any:
    """A TMA descriptor of ``tensor`` for copies of ``box``, to be passed to a kernel.

    ``tensor`` is a contiguous torch tensor of fp32, fp16 or bf16 whose rows begin at multiples of
    16 bytes, ``box`` has as many numbers, in the same order, none above 256. Rows of the box lie in
    shared memory under the 128-byte swizzle, so that its last number is 32 in fp32 and 64 else; not
    ``swizzled`` they lie as they are, in whole pieces of 16 bytes. What is outside the tensor
    arrives as zeros.
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
    wide, piece = (size // tensor.element_size() for size in (SWIZZLED_BYTES, PIECE))
    fits = box[-1] == wide if swizzled else box[-1] % piece == 0
    if len(box) != tensor.ndim or max(box) > MOST or not fits:
        last = wide if swizzled else f"a multiple of {piece}"
        raise UsageError(
            f"a tensor map of {tensor.ndim} dimensions of {tensor.dtype} for boxes of {box}",
            hint=f"a number for each dimension, none above {MOST}, the last of them {last}",
        )
    bits = tensor.view({2: torch.int16, 4: torch.int32}[tensor.element_size()])
    view = StridedMemoryView.from_any_interface(bits, stream_ptr=-1)
    return view.as_tensor_map(
        box_dim=box,
        data_type=types[tensor.dtype],
        swizzle=tma.TensorMapSwizzle.SWIZZLE_128B if swizzled else tma.TensorMapSwizzle.NONE,
        l2_promotion=tma.TensorMapL2Promotion.L2_256B,
    )
