// What the kernels of this study add: views of four dimensions by the copy engine, and rows of the
// result that do not follow each other in memory.
#pragma once
#include "attention.cuh"

// A box of [rows][64] of one head into shared memory, swizzled as the map says. Rows beyond the
// end arrive as zeros and count as bytes all the same.
__device__ __forceinline__ void copy_box(void* to, const TensorMap& map, int column, int row,
                                         int head, int batch, Barrier* barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];"
                 ::"r"(shared_address(to)), "l"(&map), "r"(column), "r"(row), "r"(head),
                   "r"(batch), "r"(shared_address(barrier)) : "memory");
}

// As store_output, for rows that are ``pitch`` elements apart.
__device__ __forceinline__ void store_rows(Element* to, size_t pitch, int rows_left,
                                           Element* panels, int panel_rows, int row,
                                           const float (&d)[kHeadDim / 2], const float (&by)[2]) {
    stage_output(panels, panel_rows, row, d, by);
    __syncwarp();
    constexpr int kChunks = kHeadDim / 8;
#pragma unroll
    for (int i = threadIdx.x % 32; i < 16 * kChunks; i += 32) {
        const int chunk = i % kChunks;
        const char* from = reinterpret_cast<const char*>(panels) + chunk / 8 * panel_rows * 128
            + swizzled(row + i / kChunks, chunk % 8);
        if (i / kChunks < rows_left)
            reinterpret_cast<uint4*>(to + i / kChunks * pitch)[chunk] =
                *reinterpret_cast<const uint4*>(from);
    }
}
