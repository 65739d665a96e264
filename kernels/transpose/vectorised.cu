// As swizzled.cu, with 16-byte accesses. Each thread transposes a square sub-tile in registers, so
// its stores to shared memory are 16 bytes too. Vector i of tile row r is at i ^ r / kVectorSize.
#include "element.cuh"

constexpr int kTileVectors = 16, kTile = kTileVectors * kVectorSize;

extern "C" __global__ void __launch_bounds__(256)
transpose(const Element* __restrict__ in, Element* __restrict__ out, int rows, int cols) {
    __shared__ Vector tile[kTile][kTileVectors];
    const int i = threadIdx.x / kTileVectors, j = threadIdx.x % kTileVectors;
    const int first_row = blockIdx.y * kTile, first_col = blockIdx.x * kTile;

    Vector sub_tile[kVectorSize] = {};
    const int row = first_row + i * kVectorSize, col = first_col + j * kVectorSize;
#pragma unroll
    for (int t = 0; t < kVectorSize; ++t)
        if (row < rows && col < cols)
            sub_tile[t] = *reinterpret_cast<const Vector*>(
                in + static_cast<size_t>(row + t) * cols + col);
#pragma unroll
    for (int t = 0; t < kVectorSize; ++t) tile[j * kVectorSize + t][i ^ j] = column(sub_tile, t);
    __syncthreads();

    const int out_row = first_col + i * kVectorSize, out_col = first_row + j * kVectorSize;
#pragma unroll
    for (int t = 0; t < kVectorSize; ++t)
        if (out_row < cols && out_col < rows)
            *reinterpret_cast<Vector*>(out + static_cast<size_t>(out_row + t) * rows + out_col) =
                tile[i * kVectorSize + t][j ^ i];
}
