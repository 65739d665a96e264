// 16-byte loads and stores of bf16 rows. A thread has eight elements, a block 2048 of a row.
#pragma once
#include <cuda_bf16.h>

constexpr int kRowThreads = 256;

struct Chunk {  // eight elements
    __nv_bfloat162 pairs[4];
};

__device__ __forceinline__ Chunk load_chunk(const __nv_bfloat16* from) {
    const uint4 raw = *reinterpret_cast<const uint4*>(from);
    return *reinterpret_cast<const Chunk*>(&raw);
}

__device__ __forceinline__ void store_chunk(__nv_bfloat16* to, const Chunk& chunk) {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(&chunk);
}
