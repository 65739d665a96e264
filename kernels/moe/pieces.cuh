// Rows of bf16, eight elements a thread: a block has 2048 of a row.
#pragma once
#include <cuda_bf16.h>

constexpr int kRowThreads = 256;

struct Piece {  // of 16 bytes
    __nv_bfloat162 pairs[4];
};

__device__ __forceinline__ Piece piece_at(const __nv_bfloat16* from) {
    const uint4 raw = *reinterpret_cast<const uint4*>(from);
    return *reinterpret_cast<const Piece*>(&raw);
}

__device__ __forceinline__ void put_piece(__nv_bfloat16* to, const Piece& piece) {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(&piece);
}
