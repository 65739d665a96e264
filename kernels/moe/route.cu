// Rows (a token and one of its experts each) sorted by expert, and the tiles that they make.
#include <cuda_runtime.h>

constexpr int kThreads = 1024;  // and the most experts

// The sum of the values of all threads before this one; all 1024 call it.
__device__ __forceinline__ int sum_before(int value, int* totals) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int sum = value;
    for (int by = 1; by < 32; by *= 2) {
        const int other = __shfl_up_sync(~0u, sum, by);
        if (lane >= by) sum += other;
    }
    __syncthreads();
    if (lane == 31) totals[warp] = sum;
    __syncthreads();
    int before = sum - value;
    for (int i = 0; i < warp; ++i) before += totals[i];
    return before;
}

// order: [rows], the row that stands at a place; place: [rows], where a row stands. tiles: expert,
// first place, the place behind the last, of up to tile_rows places; an expert of -1 is no tile.
extern "C" __global__ void __launch_bounds__(kThreads)
route(const int* __restrict__ ids, int rows, int experts, int tile_rows, int most_tiles,
      int* __restrict__ order, int* __restrict__ place, int4* __restrict__ tiles) {
    __shared__ int next[kThreads], totals[32], used;
    const int at = threadIdx.x;
    next[at] = 0;
    __syncthreads();
    for (int row = at; row < rows; row += kThreads) atomicAdd(next + ids[row], 1);
    __syncthreads();

    const int count = next[at], own = (count + tile_rows - 1) / tile_rows;
    const int first = sum_before(count, totals);
    const int first_tile = sum_before(own, totals);
    if (at == kThreads - 1) used = first_tile + own;
    for (int i = 0; i < own; ++i)
        tiles[first_tile + i] = make_int4(at, first + i * tile_rows,
                                          first + min(count, (i + 1) * tile_rows), 0);
    next[at] = first;
    __syncthreads();

    for (int i = used + at; i < most_tiles; i += kThreads) tiles[i] = make_int4(-1, 0, 0, 0);
    for (int row = at; row < rows; row += kThreads) {
        const int to = atomicAdd(next + ids[row], 1);
        order[to] = row;
        place[row] = to;
    }
}
