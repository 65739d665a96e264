// Loads of 4D tensors by TMA, and an output whose rows are apart in memory.
#pragma once
#include "attention.cuh"

// As tma_load in hopper.cuh, with heads and sequences as separate dimensions.
__device__ __forceinline__ void tma_load(void* to, const TensorMap& map, int column, int row,
                                         int head, int batch, Barrier* barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile"
                 ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];"
                 ::"r"(shared_address(to)), "l"(&map), "r"(column), "r"(row), "r"(head),
                   "r"(batch), "r"(shared_address(barrier)) : "memory");
}

// As store_output, for output rows that are ``row_stride`` elements apart.
__device__ __forceinline__ void store_rows(Element* out, size_t row_stride, int rows_left,
                                           Element* panels, int panel_rows, int row,
                                           const float (&d)[kHeadDim / 2],
                                           const float (&factor)[2]) {
    stage_output(panels, panel_rows, row, d, factor);
    __syncwarp();
    constexpr int kChunks = kHeadDim / 8;
#pragma unroll
    for (int i = threadIdx.x % 32; i < 16 * kChunks; i += 32) {
        const int chunk = i % kChunks;
        const char* from = reinterpret_cast<const char*>(panels) + chunk / 8 * panel_rows * 128
            + swizzled(row + i / kChunks, chunk % 8);
        if (i / kChunks < rows_left)
            reinterpret_cast<uint4*>(out + i / kChunks * row_stride)[chunk] =
                *reinterpret_cast<const uint4*>(from);
    }
}
