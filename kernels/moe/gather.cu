// Copies each slot's token to the slot's row, in the order sorted by expert.
#include "chunks.cuh"

extern "C" __global__ void __launch_bounds__(kRowThreads)
gather(const __nv_bfloat16* __restrict__ x, const int* __restrict__ slot_of_row,
       __nv_bfloat16* __restrict__ gathered, int topk, int hidden) {
    const int column = (blockIdx.y * kRowThreads + threadIdx.x) * 8;
    if (column >= hidden) return;
    const size_t token = slot_of_row[blockIdx.x] / topk;
    store_chunk(gathered + static_cast<size_t>(blockIdx.x) * hidden + column,
                load_chunk(x + token * hidden + column));
}
