// out = a @ b, of half precision, summed in fp32; tiles of 128 x 128 x 32, eight warps of 64 x 32.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int kTile = 128, kDepth = 32, kPitchA = kDepth + 8, kPitchB = kTile + 8;
[[maybe_unused]] constexpr int kStage = kTile * kPitchA + kDepth * kPitchB;  // halves
constexpr int kThreads = 256;

__device__ __forceinline__ void copy16(__half* to, const __half* from) {
#if NO_ASYNC_COPY
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);  // fault: no_async_copy
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(from));
#endif
}

__device__ __forceinline__ void fetch(__half* stage, const __half* a, const __half* b, int n, int k) {
#pragma unroll
    for (int i = threadIdx.x; i < kTile * kDepth / 8; i += kThreads)
        copy16(stage + i / 4 * kPitchA + i % 4 * 8, a + static_cast<size_t>(i / 4) * k + i % 4 * 8);
#pragma unroll
    for (int i = threadIdx.x; i < kTile * kDepth / 8; i += kThreads)
        copy16(stage + kTile * kPitchA + i / 16 * kPitchB + i % 16 * 8,
               b + static_cast<size_t>(i / 16) * n + i % 16 * 8);
    asm volatile("cp.async.commit_group;");
}

extern "C" __global__ void __launch_bounds__(kThreads)
gemm(const __half* __restrict__ a, const __half* __restrict__ b, float* __restrict__ out, int n, int k) {
    extern __shared__ __align__(16) __half shared[];
    a += static_cast<size_t>(blockIdx.y) * kTile * k;
    b += blockIdx.x * kTile;
    out += static_cast<size_t>(blockIdx.y) * kTile * n + blockIdx.x * kTile;
    [[maybe_unused]] const int warp_row = threadIdx.x / 128 * 64, warp_column = threadIdx.x / 32 % 4 * 32;
#if FP32
    float sums[8][8] = {};
#else
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[4][2];
#pragma unroll
    for (int i = 0; i < 8; ++i) wmma::fill_fragment(sums[i / 2][i % 2], 0.0f);
#endif
#if !NO_ASYNC_COPY
    fetch(shared, a, b, n, k);
#endif
    for (int at = 0; at < k; at += kDepth) {
#if NO_ASYNC_COPY
        __half* stage = shared;
        __syncthreads();
        fetch(stage, a + at, b + static_cast<size_t>(at) * n, n, k);
#else
        __half* stage = shared + at / kDepth % 2 * kStage;
        if (at + kDepth < k)
            fetch(shared + (at / kDepth + 1) % 2 * kStage, a + at + kDepth,
                  b + static_cast<size_t>(at + kDepth) * n, n, k);
        else
            asm volatile("cp.async.commit_group;");
        asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
        __syncthreads();
        const __half *tile_a = stage, *tile_b = stage + kTile * kPitchA;
#if FP32
        const int row = threadIdx.x / 16 * 8, column = threadIdx.x % 16 * 8;
        for (int d = 0; d < kDepth; ++d) {
            float x[8], y[8];
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                x[i] = __half2float(tile_a[(row + i) * kPitchA + d]);
                y[i] = __half2float(tile_b[d * kPitchB + column + i]);
            }
#pragma unroll
            for (int i = 0; i < 64; ++i) sums[i / 8][i % 8] += x[i / 8] * y[i % 8];  // fault: fp32
        }
#else
#pragma unroll
        for (int d = 0; d < kDepth; d += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> x[4];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> y[2];
#pragma unroll
            for (int i = 0; i < 4; ++i) wmma::load_matrix_sync(x[i], tile_a + (warp_row + 16 * i) * kPitchA + d, kPitchA);
#pragma unroll
            for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(y[i], tile_b + d * kPitchB + warp_column + 16 * i, kPitchB);
#pragma unroll
            for (int i = 0; i < 8; ++i) wmma::mma_sync(sums[i / 2][i % 2], x[i / 2], y[i % 2], sums[i / 2][i % 2]);
        }
#endif
        __syncthreads();
    }
#if FP32
    const int row = threadIdx.x / 16 * 8, column = threadIdx.x % 16 * 8;
#pragma unroll
    for (int i = 0; i < 64; ++i) out[static_cast<size_t>(row + i / 8) * n + column + i % 8] = sums[i / 8][i % 8];
#else
#pragma unroll
    for (int i = 0; i < 8; ++i)
        wmma::store_matrix_sync(out + static_cast<size_t>(warp_row + i / 2 * 16) * n + warp_column + i % 2 * 16,
                                sums[i / 2][i % 2], n, wmma::mem_row_major);
#endif
}
