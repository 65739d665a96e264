// Routing: a stable sort of the slots (one expert of one token) by expert. One block per expert
// reads all ids, counts the slots of lower experts and lists its own. Blocks do not communicate,
// and the order is deterministic.

constexpr int kWarps = THREADS / 32;
constexpr int kWords = WORDS;  // bit masks per lane; each covers 1024 slots of a warp

// A row is a slot's position in the sorted order. ids: [slots], each in [0, experts). first_row:
// [experts + 1]. token_of_row, row_of_slot: [slots]. done: [experts], cleared for the next kernel.
extern "C" __global__ void __launch_bounds__(THREADS)
dispatch(const int* __restrict__ ids, int* __restrict__ first_row, int* __restrict__ token_of_row,
         int* __restrict__ row_of_slot, int* __restrict__ done, int slots, int topk) {
    __shared__ int warp_own[kWarps], warp_lower[kWarps];
    const int expert = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int groups = (slots + 32 * kWarps - 1) / (32 * kWarps);  // groups of 32 slots per warp
    const int start = warp * groups * 32;

    unsigned matches[kWords];  // [i]: the expert's slots in group 32 i + lane, as bits
    int own = 0, lower = 0;
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
        matches[word] = 0;
#pragma unroll
        for (int base = 0; base < 32; base += 8) {
            if (word * 32 + base >= groups) break;
#pragma unroll
            for (int i = base; i < base + 8; ++i) {
                const int group = word * 32 + i, slot = start + group * 32 + lane;
                const int id = group < groups && slot < slots ? __ldg(ids + slot) : 0x7fffffff;
                const unsigned found = __ballot_sync(~0u, id == expert);
                if (lane == i) matches[word] = found;
                own += __popc(found);
                lower += id < expert;
            }
        }
    }
    lower = __reduce_add_sync(~0u, lower);
    if (lane == 0) {
        warp_own[warp] = own;
        warp_lower[warp] = lower;
    }
    __syncthreads();
    int next_row = 0, total = 0;
    for (int i = 0; i < kWarps; ++i) {
        next_row += warp_lower[i] + (i < warp ? warp_own[i] : 0);
        total += warp_own[i];
    }
    if (threadIdx.x == 0) {
        int before = 0;
        for (int i = 0; i < kWarps; ++i) before += warp_lower[i];
        first_row[expert] = before;
        done[expert] = 0;
        if (expert == gridDim.x - 1) first_row[expert + 1] = before + total;
    }
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
        const int count = __popc(matches[word]);
        int sum = count;  // inclusive prefix sum over the lanes
        for (int step = 1; step < 32; step *= 2) {
            const int lower_lane = __shfl_up_sync(~0u, sum, step);
            if (lane >= step) sum += lower_lane;
        }
        int row = next_row + sum - count;
        for (unsigned bits = matches[word]; bits; bits &= bits - 1, ++row) {
            const int slot = start + (word * 32 + lane) * 32 + __ffs(bits) - 1;
            token_of_row[row] = slot / topk;
            row_of_slot[slot] = row;
        }
        next_row += __shfl_sync(~0u, sum, 31);
    }
}
