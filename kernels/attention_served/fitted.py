"""Up to 512 keys: one warpgroup per 128 keys, and several blocks per SM."""

import torch

from workbench import cuda

params = cuda.params(stagger=1, early=0, polynomial=0)
ROWS = 64
WARPGROUPS = (1, 2, 4)  # per block
KEYS = 128  # per warpgroup


def shared_bytes(warpgroups: int) -> int:
    return (ROWS + 2 * KEYS * warpgroups) * 128 + 512 * warpgroups + 1024 + 256


dtypes = (torch.float16,) if params["polynomial"] else (torch.float16, torch.bfloat16)
kernels = {
    (warpgroups, masked, causal, dtype): cuda.kernel(
        "fitted.cu",
        "attention_forward",
        defines={"HEAD_DIM": 64, "MASKED": masked, "CAUSAL": causal, **params}
        | {"GROUPS": warpgroups, "SHARED_BYTES": shared_bytes(warpgroups)}
        | ({"BF16": 1} if dtype == torch.bfloat16 else {}),
    )
    for warpgroups in WARPGROUPS
    for masked, causal in ((False, False), (True, False), (True, True))
    for dtype in dtypes
}


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    key_heads, keys = k.shape[1:3]
    if d != 64 or keys > KEYS * WARPGROUPS[-1] or q.dtype not in dtypes:
        raise NotImplementedError("head dimension 64, at most 512 keys, fp16 or bf16")
    if h % key_heads:
        raise NotImplementedError("query heads must be a multiple of key heads")
    if causal and s > keys:
        raise NotImplementedError("some queries would see no key")
    for x in (q, k, v):
        strides = x.stride()
        if strides[3] != 1 or x.data_ptr() % 16 or any(n % 8 or not n for n in strides[:3]):
            raise NotImplementedError("rows must be contiguous, 16-byte aligned and not expanded")
    out = torch.empty((b, s, h, d), dtype=q.dtype, device=q.device)
    maps = [cuda.tensor_map(x, (1, 1, box, 64)) for x, box in ((q, ROWS), (k, KEYS), (v, KEYS))]
    warpgroups = next(n for n in WARPGROUPS if keys <= n * KEYS)
    kernel = kernels[warpgroups, causal or keys % (warpgroups * KEYS) != 0, causal, q.dtype]
    kernel[(-(-s // ROWS), h, b), 128 * warpgroups, shared_bytes(warpgroups)](
        *maps, out, s, keys, h // key_heads, d**-0.5
    )
    return out
