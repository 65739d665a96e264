// As vectorised.cu, with tiles loaded and stored by TMA. With SWIZZLE, boxes are 128 bytes wide and
// TMA puts vector i of tile row r at i ^ r % 8. Without it, a tile is one box in row order. The
// sub-tiles of eight neighbouring threads lie on a diagonal, so neither layout has bank conflicts.
#include "element.cuh"

constexpr int kTileVectors = 16, kTile = kTileVectors * kVectorSize;
constexpr int kBoxVectors = SWIZZLE ? 8 : kTileVectors;  // vectors in a row of a box
constexpr int kBoxes = kTileVectors / kBoxVectors;

struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

struct alignas(1024) SharedStorage {
    Vector in[kBoxes][kTile][kBoxVectors], out[kBoxes][kTile][kBoxVectors];
    unsigned long long full_barrier;
};
static_assert(sizeof(SharedStorage) + 1023 <= SHARED_BYTES, "SHARED_BYTES is too small");

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void tma_load(const void* to, const TensorMap& map, int col, int row,
                                         const void* barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(shared_address(to)), "l"(&map), "r"(col), "r"(row),
                   "r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap& map, int col, int row,
                                          const void* from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
                 " [%0, {%1, %2}], [%3];"
                 ::"l"(&map), "r"(col), "r"(row), "r"(shared_address(from)) : "memory");
}

// Vector 8 * half + i of a tile row.
__device__ __forceinline__ Vector& vector_at(Vector (&tile)[kBoxes][kTile][kBoxVectors],
                                             int row, int half, int i) {
    return SWIZZLE ? tile[half][row][i ^ row % 8] : tile[0][row][half * 8 + i];
}

extern "C" __global__ void __launch_bounds__(256)
transpose(const __grid_constant__ TensorMap in_map, const __grid_constant__ TensorMap out_map) {
    extern __shared__ char raw[];
    SharedStorage& shared = *reinterpret_cast<SharedStorage*>(raw + (-shared_address(raw) & 1023));
    const int first_col = blockIdx.x * kTile, first_row = blockIdx.y * kTile;
    const unsigned full_barrier = shared_address(&shared.full_barrier);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full_barrier) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     ::"r"(full_barrier), "r"(static_cast<int>(sizeof(shared.in))) : "memory");
        for (int box = 0; box < kBoxes; ++box)
            tma_load(shared.in[box], in_map, first_col + box * kBoxVectors * kVectorSize, first_row,
                     &shared.full_barrier);
    }
    __syncthreads();
    unsigned done;
    do {
        asm volatile("{.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(done) : "r"(full_barrier) : "memory");
    } while (!done);

    const int i = threadIdx.x % 8, j = i ^ threadIdx.x / 8 % 8;
    const int row_half = threadIdx.x / 64 % 2, col_half = threadIdx.x / 128;
    Vector sub_tile[kVectorSize];
#pragma unroll
    for (int t = 0; t < kVectorSize; ++t)
        sub_tile[t] = vector_at(shared.in, (row_half * 8 + i) * kVectorSize + t, col_half, j);
#pragma unroll
    for (int t = 0; t < kVectorSize; ++t)
        vector_at(shared.out, (col_half * 8 + j) * kVectorSize + t, row_half, i) =
            column(sub_tile, t);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int box = 0; box < kBoxes; ++box)
            tma_store(out_map, first_row + box * kBoxVectors * kVectorSize, first_col,
                      shared.out[box]);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}
