// As fix2, but the next tiles are on their way (cp.async) while one is worked on: a ring of four.
#include "mma.cuh"

constexpr int kThreads = 256;
constexpr int kRows = 64, kCols = 128, kDepth = 64, kStages = 4;
constexpr int kStride = kDepth + 8;  // padded: the eight rows of a fragment lie in other banks
constexpr int kTile = (kRows + kCols) * kStride;
static_assert(kStages * kTile * 2 == SHARED_BYTES);

__device__ __forceinline__ void copy_piece(__nv_bfloat16* to, const __nv_bfloat16* from) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
product(const __nv_bfloat16* __restrict__ a, const __nv_bfloat16* __restrict__ w,
        __nv_bfloat16* __restrict__ out, const int4* __restrict__ tiles, int cols, int depth) {
    extern __shared__ __align__(16) __nv_bfloat16 ring[];
    const int4 tile = tiles[blockIdx.x];
    const int expert = tile.x, first = tile.y, end = tile.z;
    if (expert < 0) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int y = warp % 2 * 32, x = warp / 2 * 32;  // of the warp's outputs
    const int col = blockIdx.y * kCols;
    const int row = threadIdx.x / 8, piece = threadIdx.x % 8 * 8;  // that the thread fetches
    const __nv_bfloat16* w_row =
        w + (static_cast<size_t>(expert) * cols + col + row) * depth + piece;

    const __nv_bfloat16* a_rows[kRows / (kThreads / 8)];
    for (int i = 0; i < kRows / (kThreads / 8); ++i) {
        const int from = min(first + row + i * (kThreads / 8), end - 1);
        a_rows[i] = a + static_cast<size_t>(from) * depth + piece;
    }

    const auto fetch = [&](int k) {  // a group of copies, empty behind the end
        if (k < depth) {
            __nv_bfloat16* a_tile = ring + k / kDepth % kStages * kTile + row * kStride + piece;
            __nv_bfloat16* w_tile = a_tile + kRows * kStride;
            for (int i = 0; i < kRows; i += kThreads / 8)
                copy_piece(a_tile + i * kStride, a_rows[i / (kThreads / 8)] + k);
            for (int i = 0; i < kCols; i += kThreads / 8)
                copy_piece(w_tile + i * kStride, w_row + static_cast<size_t>(i) * depth + k);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int stage = 0; stage < kStages - 1; ++stage) fetch(stage * kDepth);

    float sums[2][4][4] = {};
    for (int k = 0; k < depth; k += kDepth) {
        asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
        __syncthreads();  // the tile is there, and the one before it has been read by all
        fetch(k + (kStages - 1) * kDepth);
        const __nv_bfloat16* a_tile = ring + k / kDepth % kStages * kTile;
        const __nv_bfloat16* w_tile = a_tile + kRows * kStride;
        for (int step = 0; step < kDepth; step += 16) {
            unsigned left[2][4], right[2][4];
            for (int m = 0; m < 2; ++m)
                load_matrices(left[m],
                              a_part<kStride>(a_tile + (y + 16 * m) * kStride + step, lane));
            for (int n = 0; n < 2; ++n)
                load_matrices(right[n],
                              b_part<kStride>(w_tile + (x + 16 * n) * kStride + step, lane));
            for (int m = 0; m < 2; ++m)
                for (int n = 0; n < 4; ++n)
                    mma(sums[m][n], left[m], right[n / 2][n % 2 * 2], right[n / 2][n % 2 * 2 + 1]);
        }
    }

    const int g = lane / 4, t = lane % 4;
    for (int m = 0; m < 2; ++m)
        for (int half = 0; half < 2; ++half) {
            const int to = first + y + 16 * m + 8 * half + g;
            if (to >= end) continue;
            __nv_bfloat16* own = out + static_cast<size_t>(to) * cols + col + x + 2 * t;
            for (int n = 0; n < 4; ++n)
                *reinterpret_cast<__nv_bfloat162*>(own + 8 * n) =
                    __floats2bfloat162_rn(sums[m][n][2 * half], sums[m][n][2 * half + 1]);
        }
}
