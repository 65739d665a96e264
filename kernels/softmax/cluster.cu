// The eight blocks of a cluster each keep a part of the row in registers. They exchange maximum and
// sum through distributed shared memory, so the row is read only once.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int kThreads = 512, kWarps = kThreads / 32, kBlocks = 8;

#if TYPE == 0
using Element = float;
#elif TYPE == 1
using Element = __half;
#else
using Element = __nv_bfloat16;
#endif

constexpr int kVectorSize = 16 / sizeof(Element);  // elements in a 16-byte vector

struct alignas(16) Vector {
    Element elements[kVectorSize];
};

struct Partial {
    float max, sum;
};

#define MINUS_INFINITY __int_as_float(0xff800000)

// exp(x - max). Clamping max keeps the result 0, not NaN, if x and max are minus infinity.
__device__ __forceinline__ float exp_minus_max(float x, float max) {
    return expf(x - fmaxf(max, -3.402823466e38f));
}

__device__ __forceinline__ Partial merge(Partial a, Partial b) {
    const float max = fmaxf(a.max, b.max);
    return {max, a.sum * exp_minus_max(a.max, max) + b.sum * exp_minus_max(b.max, max)};
}

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Stores to the shared memory of another block of the cluster, at the address of local.
__device__ __forceinline__ void store_remote(const Partial* local, int block, Partial value) {
    unsigned remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(remote) : "r"(shared_address(local)), "r"(block));
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};"
                 ::"r"(remote), "f"(value.max), "f"(value.sum) : "memory");
}

__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

extern "C" __global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads)
softmax(const Element* __restrict__ x, Element* __restrict__ out, int cols) {
    __shared__ alignas(8) Partial warp_partials[kWarps], block_partials[kBlocks];
    cluster_arrive();  // shared memory of other blocks can be written only after they have started
    const int block = blockIdx.x % kBlocks, lane = threadIdx.x % 32;
    const size_t row = static_cast<size_t>(blockIdx.x / kBlocks) * cols;
    const int first_col = (block * kThreads + threadIdx.x) * kVectorSize;
    constexpr int kStride = kBlocks * kThreads * kVectorSize;

    Vector vectors[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; ++i)
        if (first_col + i * kStride < cols)
            *reinterpret_cast<uint4*>(&vectors[i]) =
                *reinterpret_cast<const uint4*>(x + row + first_col + i * kStride);

    Partial own = {MINUS_INFINITY, 0};
    float value[VECTORS][kVectorSize];
#pragma unroll
    for (int i = 0; i < VECTORS; ++i)
#pragma unroll
        for (int k = 0; k < kVectorSize; ++k) {
            const bool in_row = first_col + i * kStride < cols;
            value[i][k] = in_row ? static_cast<float>(vectors[i].elements[k]) : MINUS_INFINITY;
            own.max = fmaxf(own.max, value[i][k]);
        }
#pragma unroll
    for (int i = 0; i < VECTORS; ++i)
#pragma unroll
        for (int k = 0; k < kVectorSize; ++k) {
            value[i][k] = exp_minus_max(value[i][k], own.max);
            own.sum += value[i][k];
        }

    Partial total = own;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        total = merge(total, {__shfl_xor_sync(~0u, total.max, offset),
                              __shfl_xor_sync(~0u, total.sum, offset)});
    if (lane == 0) warp_partials[threadIdx.x / 32] = total;
    __syncthreads();
    cluster_wait();
    if (threadIdx.x < kBlocks) {
        total = warp_partials[0];
        for (int i = 1; i < kWarps; ++i) total = merge(total, warp_partials[i]);
        store_remote(&block_partials[block], threadIdx.x, total);
    }
    cluster_arrive();
    cluster_wait();
    total = block_partials[0];
#pragma unroll
    for (int i = 1; i < kBlocks; ++i) total = merge(total, block_partials[i]);

    const float scale = exp_minus_max(own.max, total.max) / total.sum;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
#pragma unroll
        for (int k = 0; k < kVectorSize; ++k)
            vectors[i].elements[k] = static_cast<Element>(value[i][k] * scale);
        if (first_col + i * kStride < cols)
            *reinterpret_cast<uint4*>(out + row + first_col + i * kStride) =
                *reinterpret_cast<uint4*>(&vectors[i]);
    }
}
