// activated = silu(gate) * up, of rows of 2 * intermediate: gate, then up.
#include "pieces.cuh"

__device__ __forceinline__ float silu(float x) { return x / (1 + __expf(-x)); }

extern "C" __global__ void __launch_bounds__(kRowThreads)
activate(const __nv_bfloat16* __restrict__ both, __nv_bfloat16* __restrict__ activated,
         int intermediate) {
    const int at = (blockIdx.y * kRowThreads + threadIdx.x) * 8;
    if (at >= intermediate) return;
    const __nv_bfloat16* row = both + static_cast<size_t>(blockIdx.x) * 2 * intermediate + at;
    Piece gate = piece_at(row);
    const Piece up = piece_at(row + intermediate);
    for (int i = 0; i < 4; ++i) {
        const float2 g = __bfloat1622float2(gate.pairs[i]), u = __bfloat1622float2(up.pairs[i]);
        gate.pairs[i] = __floats2bfloat162_rn(silu(g.x) * u.x, silu(g.y) * u.y);
    }
    put_piece(activated + static_cast<size_t>(blockIdx.x) * intermediate + at, gate);
}
