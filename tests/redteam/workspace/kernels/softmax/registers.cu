// Softmax of a row by one block of 256 threads, which keeps its row in registers.
#include "block.cuh"

#ifndef EARLY
#define EARLY 0
#endif

constexpr int MOST = 4;  // elements a thread

extern "C" __global__ void softmax_in_registers(const float* x, float* out, int cols) {
    const float* row = x + (long long)blockIdx.x * cols;
    float values[MOST], most = -INFINITY, sum = 0;
    if (EARLY) asm volatile("griddepcontrol.wait;" ::: "memory");
    for (int i = 0; i < MOST; ++i) {
        const int at = threadIdx.x + 256 * i;
        values[i] = at < cols ? row[at] : -INFINITY;
        most = fmaxf(most, values[i]);
    }
    most = block_max(most);
    for (int i = 0; i < MOST; ++i) sum += values[i] = expf(values[i] - most);
    sum = block_sum(sum);
    for (int i = 0; i < MOST; ++i) {
        const int at = threadIdx.x + 256 * i;
        if (at < cols) out[(long long)blockIdx.x * cols + at] = values[i] / sum;
    }
}
