// Slots (a token's expert each) in the order of their experts, those of an expert in their own. A
// block an expert: it looks at all slots, counts those of smaller experts and lists its own. No
// block waits for another, and the order is the same in every run.

constexpr int kWarps = THREADS / 32;
constexpr int kWords = WORDS;  // 1024 slots a warp each

// ids: [slots] of [0, experts). first: [experts + 1], where an expert's slots start in the order;
// token: [slots], of the slot that is there; place: [slots], where a slot is. done: [experts], cleared
// for what follows.
extern "C" __global__ void __launch_bounds__(THREADS)
dispatch(const int* __restrict__ ids, int* __restrict__ first, int* __restrict__ token,
         int* __restrict__ place, int* __restrict__ done, int slots, int topk) {
    __shared__ int own_of[kWarps], smaller_of[kWarps];
    const int expert = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int pieces = (slots + 32 * kWarps - 1) / (32 * kWarps);  // of 32 slots, of a warp
    const int start = warp * pieces * 32;

    unsigned kept[kWords];  // which of piece 32 i + lane are the expert's
    int own = 0, smaller = 0;
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
        kept[word] = 0;
#pragma unroll
        for (int part = 0; part < 32; part += 8) {
            if (word * 32 + part >= pieces) break;
#pragma unroll
            for (int i = part; i < part + 8; ++i) {
                const int piece = word * 32 + i, slot = start + piece * 32 + lane;
                const int id = piece < pieces && slot < slots ? __ldg(ids + slot) : 0x7fffffff;
                const unsigned found = __ballot_sync(~0u, id == expert);
                if (lane == i) kept[word] = found;
                own += __popc(found);
                smaller += id < expert;
            }
        }
    }
    smaller = __reduce_add_sync(~0u, smaller);
    if (lane == 0) {
        own_of[warp] = own;
        smaller_of[warp] = smaller;
    }
    __syncthreads();
    int at = 0, total = 0;
    for (int i = 0; i < kWarps; ++i) {
        at += smaller_of[i] + (i < warp ? own_of[i] : 0);
        total += own_of[i];
    }
    if (threadIdx.x == 0) {
        int before = 0;
        for (int i = 0; i < kWarps; ++i) before += smaller_of[i];
        first[expert] = before;
        done[expert] = 0;
        if (expert == gridDim.x - 1) first[expert + 1] = before + total;
    }
#pragma unroll
    for (int word = 0; word < kWords; ++word) {
        const int count = __popc(kept[word]);
        int upto = count;  // in the pieces up to the lane's
        for (int step = 1; step < 32; step *= 2) {
            const int below = __shfl_up_sync(~0u, upto, step);
            if (lane >= step) upto += below;
        }
        int to = at + upto - count;
        for (unsigned left = kept[word]; left; left &= left - 1, ++to) {
            const int slot = start + (word * 32 + lane) * 32 + __ffs(left) - 1;
            token[to] = slot / topk;
            place[slot] = to;
        }
        at += __shfl_sync(~0u, upto, 31);
    }
}
