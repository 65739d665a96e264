// activated = silu(gate) * up. A row of ``gate_up`` has the gate, then the up projection.
#include "chunks.cuh"

__device__ __forceinline__ float silu(float x) { return x / (1 + __expf(-x)); }

extern "C" __global__ void __launch_bounds__(kRowThreads)
activate(const __nv_bfloat16* __restrict__ gate_up, __nv_bfloat16* __restrict__ activated,
         int intermediate) {
    const int column = (blockIdx.y * kRowThreads + threadIdx.x) * 8;
    if (column >= intermediate) return;
    const __nv_bfloat16* row =
        gate_up + static_cast<size_t>(blockIdx.x) * 2 * intermediate + column;
    Chunk gate = load_chunk(row);
    const Chunk up = load_chunk(row + intermediate);
    for (int i = 0; i < 4; ++i) {
        const float2 g = __bfloat1622float2(gate.pairs[i]), u = __bfloat1622float2(up.pairs[i]);
        gate.pairs[i] = __floats2bfloat162_rn(silu(g.x) * u.x, silu(g.y) * u.y);
    }
    store_chunk(activated + static_cast<size_t>(blockIdx.x) * intermediate + column, gate);
}
