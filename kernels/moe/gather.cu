// Tokens copied to their places.
#include "pieces.cuh"

extern "C" __global__ void __launch_bounds__(kRowThreads)
gather(const __nv_bfloat16* __restrict__ x, const int* __restrict__ order,
       __nv_bfloat16* __restrict__ gathered, int topk, int hidden) {
    const int at = (blockIdx.y * kRowThreads + threadIdx.x) * 8;
    if (at >= hidden) return;
    const size_t token = order[blockIdx.x] / topk;
    put_piece(gathered + static_cast<size_t>(blockIdx.x) * hidden + at,
              piece_at(x + token * hidden + at));
}
