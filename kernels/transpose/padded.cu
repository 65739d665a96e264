// As tiled.cu, with tile rows of 33 elements: a 4-byte tile column then spans all 32 banks.
#include "element.cuh"

extern "C" __global__ void __launch_bounds__(256)
transpose(const Element* __restrict__ in, Element* __restrict__ out, int rows, int cols) {
    __shared__ Element tile[32][33];
    const int x = threadIdx.x, first_row = blockIdx.y * 32, first_col = blockIdx.x * 32;
#pragma unroll
    for (int y = threadIdx.y; y < 32; y += 8)
        if (first_row + y < rows && first_col + x < cols)
            tile[y][x] = in[static_cast<size_t>(first_row + y) * cols + first_col + x];
    __syncthreads();
#pragma unroll
    for (int y = threadIdx.y; y < 32; y += 8)
        if (first_col + y < cols && first_row + x < rows)
            out[static_cast<size_t>(first_col + y) * rows + first_row + x] = tile[x][y];
}
