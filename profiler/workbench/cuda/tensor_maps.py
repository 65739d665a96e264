"""TMA descriptors of tensors."""

from __future__ import annotations

from functools import lru_cache
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
    where = (tensor.device.index, tensor.data_ptr())
    return _described(*where, tensor.shape, tensor.stride(), tensor.dtype, tuple(box), swizzled)


class _Bare:
    """Where a tensor lies, and nothing that would keep its memory."""

    def __init__(self, described: dict[str, Any]) -> None:
        self.__cuda_array_interface__ = described


# A model passes the same addresses at every step, and the host takes longer over a descriptor than
# over a launch. It depends on these values alone.
@lru_cache(maxsize=1024)
def _described(
    device: int | None,
    pointer: int,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: Any,
    box: tuple[int, ...],
    swizzled: bool,
) -> Any:
    import torch

    # as_tensor_map is public; the enumerations of its arguments are not (as of cuda-core 1.2).
    from cuda.core import _tensor_map as tma
    from cuda.core.utils import StridedMemoryView

    types = {
        torch.float32: tma.TensorMapDataType.FLOAT32,
        torch.float16: tma.TensorMapDataType.FLOAT16,
        torch.bfloat16: tma.TensorMapDataType.BFLOAT16,
    }
    if dtype not in types:
        raise UsageError(
            f"a tensor map of {dtype}: only float32, float16 and bfloat16 are supported"
        )
    size = dtype.itemsize
    wide, piece = SWIZZLED_BYTES // size, PIECE // size
    fits = box[-1] == wide if swizzled else box[-1] % piece == 0
    if len(box) != len(shape) or max(box) > MOST or not fits:
        last = wide if swizzled else f"a multiple of {piece}"
        raise UsageError(
            f"a tensor map of {len(shape)} dimensions of {dtype} for boxes of {box}",
            hint=f"a number for each dimension, none above {MOST}, the last of them {last}",
        )
    bare = _Bare(
        {
            "shape": tuple(shape),
            "strides": tuple(step * size for step in stride),
            "typestr": f"<i{size}",
            "data": (pointer, False),
            "version": 3,
        }
    )
    view = StridedMemoryView.from_cuda_array_interface(bare, stream_ptr=-1)
    return view.as_tensor_map(
        box_dim=box,
        data_type=types[dtype],
        swizzle=tma.TensorMapSwizzle.SWIZZLE_128B if swizzled else tma.TensorMapSwizzle.NONE,
        l2_promotion=tma.TensorMapL2Promotion.L2_256B,
    )
