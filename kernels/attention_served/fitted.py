"""All keys of a head at once, shared by as many warpgroups as they need: for up to 512 keys."""

import torch

from workbench import cuda

params = cuda.params(stagger=1, early=0, polynomial=0)
ROWS = 64
GROUPS = (1, 2, 4)  # warpgroups
KEYS = 128  # of each


def shared_bytes(groups: int) -> int:
    return (ROWS + 2 * KEYS * groups) * 128 + 512 * groups + 1024 + 256


dtypes = (torch.float16,) if params["polynomial"] else (torch.float16, torch.bfloat16)
kernels = {
    (groups, masked, causal, dtype): cuda.kernel(
        "fitted.cu",
        "attention_forward",
        defines={"HEAD_DIM": 64, "MASKED": masked, "CAUSAL": causal, **params}
        | {"GROUPS": groups, "SHARED_BYTES": shared_bytes(groups)}
        | ({"BF16": 1} if dtype == torch.bfloat16 else {}),
    )
    for groups in GROUPS
    for masked, causal in ((False, False), (True, False), (True, True))
    for dtype in dtypes
}


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    b, h, s, d = q.shape
    key_heads, keys = k.shape[1:3]
    if d != 64 or keys > KEYS * GROUPS[-1] or q.dtype not in dtypes:
        raise NotImplementedError("head dimension 64, at most 512 keys, fp16 or bf16")
    if h % key_heads:
        raise NotImplementedError("as many heads of queries for each head of keys")
    if causal and s > keys:
        raise NotImplementedError("a query would see no key")
    for x in (q, k, v):
        steps = x.stride()
        if steps[3] != 1 or x.data_ptr() % 16 or any(n % 8 or not n for n in steps[:3]):
            raise NotImplementedError("rows in one piece, each at a multiple of 16 bytes")
    out = torch.empty((b, s, h, d), dtype=q.dtype, device=q.device)
    maps = [cuda.tensor_map(x, (1, 1, box, 64)) for x, box in ((q, ROWS), (k, KEYS), (v, KEYS))]
    groups = next(n for n in GROUPS if keys <= n * KEYS)
    kernel = kernels[groups, causal or keys % (groups * KEYS) != 0, causal, q.dtype]
    kernel[(-(-s // ROWS), h, b), 128 * groups, shared_bytes(groups)](
        *maps, out, s, keys, h // key_heads, d**-0.5
    )
    return out
