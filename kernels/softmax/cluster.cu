// A row is shared by the eight blocks of a cluster. Each keeps its part in registers, and they tell
// each other maximum and sum through distributed shared memory: the row is read once.
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

constexpr int kVector = 16 / sizeof(Element);

struct alignas(16) Chunk {
    Element at[kVector];
};

struct Partial {
    float top, sum;
};

#define NOTHING __int_as_float(0xff800000)  // minus infinity

// exp(x - top) is 0 of minus infinity, also where nothing but that has been seen.
__device__ __forceinline__ float weight(float x, float top) {
    return expf(x - fmaxf(top, -3.402823466e38f));
}

__device__ __forceinline__ Partial merge(Partial a, Partial b) {
    const float top = fmaxf(a.top, b.top);
    return {top, a.sum * weight(a.top, top) + b.sum * weight(b.top, top)};
}

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Writes a value into the shared memory of a block of the cluster, at where it is in this one.
__device__ __forceinline__ void tell(const Partial* at, int block, Partial value) {
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there) : "r"(shared_address(at)), "r"(block));
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};"
                 ::"r"(there), "f"(value.top), "f"(value.sum) : "memory");
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

extern "C" __global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads)
softmax(const Element* __restrict__ x, Element* __restrict__ out, int cols) {
    __shared__ alignas(8) Partial of_warps[kWarps], of_blocks[kBlocks];
    const int block = blockIdx.x % kBlocks, lane = threadIdx.x % 32;
    const size_t row = static_cast<size_t>(blockIdx.x / kBlocks) * cols;
    const int first = (block * kThreads + threadIdx.x) * kVector;
    constexpr int kStep = kBlocks * kThreads * kVector;

    Chunk chunk[CHUNKS];
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i)
        if (first + i * kStep < cols)
            *reinterpret_cast<uint4*>(&chunk[i]) =
                *reinterpret_cast<const uint4*>(x + row + first + i * kStep);

    Partial own = {NOTHING, 0};
    float value[CHUNKS][kVector];
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i)
#pragma unroll
        for (int k = 0; k < kVector; ++k) {
            value[i][k] = first + i * kStep < cols ? static_cast<float>(chunk[i].at[k]) : NOTHING;
            own.top = fmaxf(own.top, value[i][k]);
        }
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i)
#pragma unroll
        for (int k = 0; k < kVector; ++k) {
            value[i][k] = weight(value[i][k], own.top);
            own.sum += value[i][k];
        }

    Partial all = own;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
        all = merge(all, {__shfl_xor_sync(~0u, all.top, offset),
                          __shfl_xor_sync(~0u, all.sum, offset)});
    if (lane == 0) of_warps[threadIdx.x / 32] = all;
    __syncthreads();
    if (threadIdx.x < kBlocks) {
        all = of_warps[0];
        for (int i = 1; i < kWarps; ++i) all = merge(all, of_warps[i]);
        tell(&of_blocks[block], threadIdx.x, all);
    }
    cluster_sync();
    all = of_blocks[0];
#pragma unroll
    for (int i = 1; i < kBlocks; ++i) all = merge(all, of_blocks[i]);

    const float scale = weight(own.top, all.top) / all.sum;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
#pragma unroll
        for (int k = 0; k < kVector; ++k)
            chunk[i].at[k] = static_cast<Element>(value[i][k] * scale);
        if (first + i * kStep < cols)
            *reinterpret_cast<uint4*>(out + row + first + i * kStep) =
                *reinterpret_cast<uint4*>(&chunk[i]);
    }
}
