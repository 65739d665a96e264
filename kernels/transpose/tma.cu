// As vectorised, with tiles fetched and written by the copy engine (TMA). Under its 128-byte
// swizzle piece p of row r lies at p ^ r % 8. A thread again transposes a square; those of eight
// neighbours lie on a diagonal, so that reading and writing them both meet every bank once.
#include "element.cuh"

constexpr int kPieces = 16, kTile = kPieces * kVector, kBoxes = kPieces / 8;

struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

struct alignas(1024) Shared {
    Chunk in[kBoxes][kTile][8], out[kBoxes][kTile][8];
    unsigned long long full;
};
static_assert(sizeof(Shared) + 1023 <= SHARED_BYTES, "a launch gives less than Shared takes");

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void fetch(const void* to, const TensorMap& map, int col, int row,
                                      const void* barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(shared_address(to)), "l"(&map), "r"(col), "r"(row),
                   "r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void send(const TensorMap& map, int col, int row, const void* from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
                 " [%0, {%1, %2}], [%3];"
                 ::"l"(&map), "r"(col), "r"(row), "r"(shared_address(from)) : "memory");
}

extern "C" __global__ void __launch_bounds__(256)
transpose(const __grid_constant__ TensorMap in_map, const __grid_constant__ TensorMap out_map) {
    extern __shared__ char raw[];
    Shared& s = *reinterpret_cast<Shared*>(raw + (-shared_address(raw) & 1023));
    const int first_col = blockIdx.x * kTile, first_row = blockIdx.y * kTile;
    const unsigned full = shared_address(&s.full);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     ::"r"(full), "r"(static_cast<int>(sizeof(s.in))) : "memory");
        for (int box = 0; box < kBoxes; ++box)
            fetch(s.in[box], in_map, first_col + box * 8 * kVector, first_row, &s.full);
    }
    __syncthreads();
    unsigned done;
    do {
        asm volatile("{.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(done) : "r"(full) : "memory");
    } while (!done);

    const int lane = threadIdx.x % 8;
    const int i = lane, j = lane ^ threadIdx.x / 8 % 8;
    const int row_box = threadIdx.x / 64 % 2, col_box = threadIdx.x / 128;
    Chunk square[kVector];
#pragma unroll
    for (int t = 0; t < kVector; ++t) {
        const int row = (row_box * 8 + i) * kVector + t;
        square[t] = s.in[col_box][row][j ^ row % 8];
    }
#pragma unroll
    for (int t = 0; t < kVector; ++t) {
        const int row = (col_box * 8 + j) * kVector + t;
        s.out[row_box][row][i ^ row % 8] = column(square, t);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int box = 0; box < kBoxes; ++box)
            send(out_map, first_row + box * 8 * kVector, first_col, s.out[box]);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}
