// Routing in one block: sorts the slots (one expert of one token) by expert and lists the tiles of
// the grouped GEMM. The order within an expert depends on atomics.
#include <cuda_runtime.h>

constexpr int kThreads = 1024;  // also the maximum number of experts

// Exclusive prefix sum over the block. All 1024 threads must call it.
__device__ __forceinline__ int exclusive_sum(int value, int* totals) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int sum = value;
    for (int step = 1; step < 32; step *= 2) {
        const int lower = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += lower;
    }
    __syncthreads();
    if (lane == 31) totals[warp] = sum;
    __syncthreads();
    int before = sum - value;
    for (int i = 0; i < warp; ++i) before += totals[i];
    return before;
}

// A row is a slot's position in the sorted order. slot_of_row, row_of_slot: [slots]. tiles:
// {expert, first row, end row}, at most tile_rows rows each; unused tiles have expert -1.
extern "C" __global__ void __launch_bounds__(kThreads)
route(const int* __restrict__ ids, int slots, int experts, int tile_rows, int max_tiles,
      int* __restrict__ slot_of_row, int* __restrict__ row_of_slot, int4* __restrict__ tiles) {
    __shared__ int next[kThreads], totals[32], used;
    const int expert = threadIdx.x;
    next[expert] = 0;
    __syncthreads();
    for (int slot = threadIdx.x; slot < slots; slot += kThreads) atomicAdd(next + ids[slot], 1);
    __syncthreads();

    const int count = next[expert], own_tiles = (count + tile_rows - 1) / tile_rows;
    const int first_row = exclusive_sum(count, totals);
    const int first_tile = exclusive_sum(own_tiles, totals);
    if (expert == kThreads - 1) used = first_tile + own_tiles;
    for (int i = 0; i < own_tiles; ++i)
        tiles[first_tile + i] = make_int4(expert, first_row + i * tile_rows,
                                          first_row + min(count, (i + 1) * tile_rows), 0);
    next[expert] = first_row;
    __syncthreads();

    for (int i = used + threadIdx.x; i < max_tiles; i += kThreads)
        tiles[i] = make_int4(-1, 0, 0, 0);
    for (int slot = threadIdx.x; slot < slots; slot += kThreads) {
        const int row = atomicAdd(next + ids[slot], 1);
        slot_of_row[row] = slot;
        row_of_slot[slot] = row;
    }
}
