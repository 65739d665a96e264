// mma.sync and ldmatrix for bf16, with fp32 accumulators.
//
// Fragments (m16n8k16), with g = lane / 4 and t = lane % 4:
//   A: rows g and g + 8, columns 2t, 2t + 1, 2t + 8, 2t + 9
//   B: rows 2t, 2t + 1, 2t + 8, 2t + 9, column g
//   C: rows g and g + 8, columns 2t, 2t + 1
#pragma once
#include <cuda_bf16.h>

__device__ __forceinline__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads four 8 x 8 matrices. Lane i has the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&to)[4], const __nv_bfloat16* from) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(from));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

// The address of a lane for ldmatrix, in a tile whose rows are kStride elements apart. A: 16 x 16.
// B: 16 columns, stored as the rows of the tile.
template <int kStride>
__device__ __forceinline__ const __nv_bfloat16* a_lane_row(const __nv_bfloat16* matrix, int lane) {
    return matrix + lane % 16 * kStride + lane / 16 * 8;
}

template <int kStride>
__device__ __forceinline__ const __nv_bfloat16* b_lane_row(const __nv_bfloat16* matrix, int lane) {
    return matrix + (lane / 16 * 8 + lane % 8) * kStride + lane / 8 % 2 * 8;
}
