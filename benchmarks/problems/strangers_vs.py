"""References that a user would write for the files of strangers.toml, in torch."""

import torch
import torch.nn.functional as F


def dot(a, b):
    return (a * b).sum().reshape(1)


def causal_entropy(logits):
    size = logits.shape[-1]
    hidden = torch.ones(size, size, dtype=torch.bool, device=logits.device).triu(1)
    logs = F.log_softmax(logits.masked_fill(hidden, float("-inf")), -1)
    entropies = -(logs.exp() * logs.masked_fill(hidden, 0)).sum(-1)
    return logs.exp().half(), entropies.mean((1, 2))


def hashed(input, R):
    x = input.long()
    for _ in range(R):
        value = torch.full_like(x, 2166136261)
        for byte in range(4):
            value = ((value ^ ((x >> (8 * byte)) & 255)) * 16777619) & 0xFFFFFFFF
        x = value
    return torch.where(x < 2**31, x, x - 2**32).int()


def cross_entropy(logits, true_labels):
    return F.cross_entropy(logits, true_labels.long()).reshape(1)


def total(input):
    return input.sum().reshape(1)


def total_of_x(x):
    return x.sum().reshape(1)


def conv1d(x, w):
    return F.conv1d(x[None, None], w[None, None])[0, 0]


def convolution(input, kernel):
    return F.conv1d(input[None, None], kernel[None, None])[0, 0]


def convolution_3d(input, kernel):
    return F.conv3d(input[None, None], kernel[None, None])[0, 0]


def causal_softmax(scores, T):
    rows, columns = scores.shape
    places = torch.arange(columns, device=scores.device)
    hidden = places[None] > (torch.arange(rows, device=scores.device) % T)[:, None]
    return scores.masked_fill(hidden, float("-inf")).softmax(-1)


def geglu(x, h):
    return x[:, :h] * F.gelu(x[:, h:], approximate="tanh")


def layernorm_backward(dy, x, gamma, mean, inv):
    normal, scaled = (x - mean) * inv, dy * gamma
    back = scaled.mean(-1, keepdim=True) + normal * (scaled * normal).mean(-1, keepdim=True)
    return (scaled - back) * inv


def rbf_backward(X, Y, G, K, gamma):
    factors = -2 * gamma * G * K
    return factors.sum(1, keepdim=True) * X - factors @ Y


def initial_stats(count):
    keys = torch.full((count,), 0x007FFFFF, dtype=torch.int32, device="cuda")
    return keys, torch.zeros(count, device="cuda")


def top8(X):
    values, places = torch.topk(X, 8)
    return values, places.int()


def block_dots(A, B):
    return (A * B).reshape(-1, 256).sum(1)


def block_sums(x):
    return x.reshape(-1, 256).sum(1)


def sums_of_512(x):
    return x.reshape(-1, 512).sum(1).to(x.dtype)


def block_scan(x):
    scanned = x.reshape(-1, 256).cumsum(1).int()
    return scanned.reshape(-1), scanned[:, -1].contiguous()


def block_products(x):
    return x.reshape(-1, 512).prod(1)


def histogram(x, bins):
    return torch.bincount(x, minlength=bins).int()


def attention(Q, K, V):
    return torch.softmax(Q @ K.T / Q.shape[1] ** 0.5, -1) @ V


def heads(Q, K, V, h):
    parts = [t.reshape(t.shape[0], h, -1).transpose(0, 1) for t in (Q, K, V)]
    return F.scaled_dot_product_attention(*parts).transpose(0, 1).reshape(Q.shape)


def triangle(base, height):
    return torch.full((1,), base * height / 2, device="cuda")


def four_results(a, b):
    return torch.tensor([a + b, a - b, a * b, a / b], device="cuda")


def root(number):
    return torch.full((1,), number**0.5, device="cuda")


def rope(K, V, S, D):
    angles = torch.outer(torch.arange(S), 10000 ** (-torch.arange(0, D, 2) / D)).to(K.device)
    turn = torch.polar(torch.ones_like(angles), angles)
    for t in (K, V):
        pairs = torch.view_as_complex(t.reshape(*t.shape[:-1], -1, 2)) * turn
        t.copy_(torch.view_as_real(pairs).flatten(-2))


def int_linear(x, weight):
    return (x.double() @ weight.double().T).int()


def int_matmul(A, B):
    return (A.double() @ B.double()).int()


def count(input, K):
    return (input == K).sum().reshape(1).int()


def swiglu(input):
    first, second = input.chunk(2)
    return F.silu(first) * second


def zero_above_100(x):
    return torch.where(x > 100, 0, x)


def final_values(x):
    red, blue, green, hue, saturation, largest, least, _ = x.unbind(1)
    gray = torch.div(red + green + blue, largest, rounding_mode="trunc")
    x = x.clone()
    x[:, 7] = gray * torch.div(hue * saturation, least, rounding_mode="trunc")
    return x


def gaussian(sigma, radius):
    squares = torch.arange(-radius, radius + 1, dtype=torch.float32, device="cuda") ** 2
    scale = 2 * sigma**2
    return torch.exp(-(squares[:, None] + squares[None]) / scale) / (3.14 * scale)


def int_product(a, b):
    return (a.double() @ b.double()).int()


def filtered(x, kernel):
    weights = kernel.double().reshape(1, 1, 5, 5)
    return F.conv2d(x.double()[None, None], weights)[0, 0].round().clamp(0, 255).to(torch.uint8)


def ascending(input):
    return input.sort().values


def segmented_sum(values, flags):
    sums = values.cumsum(0)
    places = torch.arange(len(values), device=values.device)
    starts = torch.where(flags > 0, places, 0).cummax(0).values
    return sums - sums[starts] + values[starts]


def inverted(image):
    result = 255 - image
    result[..., 3] = image[..., 3]
    return result


def centroids(old_x, old_y, sum_x, sum_y, counts):
    number, has_points = counts.clamp(min=1), counts > 0
    new_x = torch.where(has_points, sum_x / number, old_x)
    return new_x, torch.where(has_points, sum_y / number, old_y)


def scan_of_1024(x):
    scanned = x.reshape(-1, 1024).cumsum(1)
    return scanned.reshape(-1), scanned[:, -1].contiguous()


def ordered_pairs(data):
    return data.reshape(-1, 2).sort(1).values.reshape(-1)


def convolution_2d(input, kernel):
    return F.conv2d(input[None, None], kernel[None, None])[0, 0]


def count_of_p(input, P):
    return (input == P).sum().reshape(1).int()


def q8_blocks(B):
    """Rounded to eight bits in blocks of 32, as these kernels do first."""
    blocks = B.reshape(len(B), -1, 32)
    scale = blocks.abs().amax(-1, keepdim=True) / 127
    return ((blocks / scale).round() * scale).reshape(B.shape)


def q4_k(A, B):
    blocks = A.reshape(len(A), -1, 144)
    factors = blocks[..., :4].contiguous().view(torch.float16).to(B.dtype)
    packed, nibbles = blocks[..., 4:16].int(), blocks[..., 16:].reshape(len(A), -1, 4, 32)
    first, second, last = packed.chunk(3, -1)
    scales = torch.cat((first & 63, last & 15 | first >> 6 << 4), -1)
    least = torch.cat((second & 63, last >> 4 | second >> 6 << 4), -1)
    quants = torch.stack((nibbles & 15, nibbles >> 4), 3).flatten(2, 3)
    scaled = (factors[..., :1] * scales)[..., None] * quants
    weights = scaled - (factors[..., 1:] * least)[..., None]
    return (q8_blocks(B) @ weights.reshape(len(A), -1).T).half()


def q6_k(A, B):
    blocks = A.reshape(len(A), -1, 210)
    low, high = (blocks[..., :192].int() & 255).split((128, 64), -1)
    low, high = low.unflatten(-1, (2, 64)), high.unflatten(-1, (2, 32))
    low = torch.cat((low & 15, low >> 4), -1).flatten(2)
    high = torch.cat([high >> shift & 3 for shift in (0, 2, 4, 6)], -1).flatten(2)
    factor = blocks[..., 208:].contiguous().view(torch.float16).to(B.dtype)
    scales = (factor * blocks[..., 192:208]).repeat_interleave(16, -1)
    weights = scales * (low + 16 * high - 32)
    return (q8_blocks(B) @ weights.reshape(len(A), -1).T).half()


def q8_0(A, B):
    blocks = A.reshape(len(A), -1, 34)
    scale = blocks[..., :2].contiguous().view(torch.float16).to(B.dtype)
    weights = scale * blocks[..., 2:]
    return (q8_blocks(B) @ weights.reshape(len(A), -1).T).half()


def points_inside(points):
    x, y = points.reshape(2, -1)
    return (x * x + y * y < 1).reshape(-1, 256).sum(1).int()


def poisson(ft, k):
    squares = k * k
    sums = squares[:, None] + squares[None]
    sums[0, 0] = 1
    return -ft / sums[..., None]


def normal_quantiles(n):
    places = torch.arange(1, n + 1, device="cuda").double() * (0xFFFFFFFF // (n + 1))
    return torch.special.ndtri((places + 0.5) / 2**32).to(torch.float32)


def transposed_sum(A, B):
    return (A + B).T.contiguous()


def gelu_backward(x, g):
    inside = 0.7978845608028654 * (x + 0.044715 * x**3)
    tanh, slope = torch.tanh(inside), 0.7978845608028654 * (1 + 3 * 0.044715 * x**2)
    return 0.5 * (1 + tanh + x * (1 - tanh**2) * slope) * g


def low_rank_sum(l, r, x):  # noqa: E741
    return x + l @ r


def low_rank_dequantized(l, r, q, o, s):  # noqa: E741
    return (q.to(s.dtype) - 128) * s[:, None] + o + l @ r


def softmax_backward(y, grad_y):
    return (grad_y - (grad_y * y).sum(-1, keepdim=True)) * y


def where_flagged(x, flags):
    return torch.where(flags > 0, x, 0)


def axpy(a, b, alpha):
    return b + alpha * a


def product_sum(A, B):
    return (A * B).sum().reshape(1)


def int4_matmul(x, w_q, scales, group_size):
    weights = torch.stack((w_q >> 4, w_q & 15), -1).flatten(1).to(x.dtype) - 8
    return x @ (weights * scales.repeat_interleave(group_size, 1)).T


def gating(logits, k):
    values, places = torch.topk(logits, k)
    return values.softmax(-1), places.int()


def subarray_sum(input, S, E):
    return input[S : E + 1].sum().reshape(1)


def fresnel(x, y, z):
    columns = torch.arange(1024, device=x.device)
    image = torch.zeros(1024, 1024, dtype=z.dtype, device=x.device)
    for point in range(len(x)):
        squares = (columns[None] - x[point]) ** 2 + (columns[:, None] - y[point]) ** 2
        image += torch.cos(torch.pi / 0.0633 * squares / z[point])
    return image


def hologram(x, y, z):
    columns = torch.arange(1024, device=x.device).to(z.dtype)
    image = torch.zeros(1024, 1024, dtype=z.dtype, device=x.device)
    for point in range(len(x)):
        squares = (columns[None] - x[point]) ** 2 + (columns[:, None] - y[point]) ** 2
        distances = torch.sqrt(squares + z[point] ** 2)
        image += torch.cos(2 * torch.pi * 10.5 / 0.633 * distances)
    return image


def float_matmul(A, B):
    return A.float() @ B.float()


def append_kv(K_new, V_new, K_cache, V_cache, t_pos):
    K_cache[t_pos].copy_(K_new)
    V_cache[t_pos].copy_(V_new)


def counted(n):
    return torch.arange(n, dtype=torch.float32, device="cuda")


def largest_window(input, window_size):
    sums = F.pad(input.long().cumsum(0), (1, 0))
    return (sums[window_size:] - sums[:-window_size]).max().int().reshape(1)


def flat_power(input, P):
    return torch.matrix_power(input, P).reshape(-1)


def scaled_tiles(X, S, TILE_SIZE):
    return X * S.repeat_interleave(TILE_SIZE, 0).repeat_interleave(TILE_SIZE, 1)


def gdn_gating(A_log, a, dt_bias):
    return -A_log.exp() * F.softplus(a + dt_bias)


def alternating():
    return torch.tensor([1.0, 2.0], device="cuda").repeat(512)


def mean_square(predictions, targets):
    return ((predictions - targets) ** 2).mean().reshape(1)


def wrapped_matmul(a, b):
    return (a.double() @ b.double()).long().to(torch.int8)


def square_plus_one(x):
    return x * x + 1


def saxpy(a, x, y):
    return a * x + y


def all_inverted(imgData):
    return 255 - imgData


def divergent(x):
    chained = x[1::2]
    for _ in range(200):  # the nearest numbers in float32 to 1.000001 and 1e-7
        chained = chained * 1.00000095367431640625 + 1.00000001168609742e-7
    return torch.stack((x[::2] + 1, chained), 1).reshape(-1)


def expert_products(tokens, weights):
    parts = tokens.reshape(len(weights), -1, tokens.shape[1])
    return torch.bmm(parts, weights.transpose(1, 2)).flatten(0, 1)


def permuted(hidden_states, top_k_indices, num_experts):
    experts = top_k_indices.reshape(-1)
    order = experts.sort(stable=True).indices
    numbers = torch.arange(num_experts, device=experts.device)
    offsets = F.pad((experts[None] == numbers[:, None]).sum(1).cumsum(0), (1, 0))
    tokens = hidden_states[order // top_k_indices.shape[1]]
    return tokens, offsets, order, order.argsort()


def int8_linear(x, weight_int8, scale):
    return F.linear(x, (weight_int8 * scale[:, None]).to(x.dtype))


def gated_silu(gate, up):
    return F.silu(gate) * up


def padded_convolution(input, kernel):
    return F.conv2d(input[None, None], kernel[None, None], padding="same")[0, 0]


def adjusted(delta, ly, w, oldw):
    """Of Rodinia's backprop: rate and momentum are 0.3, and row 0 is the bias."""
    change = 0.3 * delta[1:] * ly[1:, None] + 0.3 * oldw[1:, 1:]
    bias = 0.3 * delta[1:] + 0.3 * oldw[0, 1:]
    for row, by in ((slice(1, None), change), (0, bias)):
        w[row, 1:] += by
        oldw[row, 1:] = by


def lud_internal(m):
    m[16:, 16:] -= m[16:, :16] @ m[:16, 16:]


def row_dots(d_A, d_B):
    return (d_A * d_B).sum(1)


def tanh_gelu(input):
    return F.gelu(input, approximate="tanh")


def layer_norm_parts(input, gamma, beta, epsilon):
    mean, variance = input.mean(1), input.var(1, correction=0)
    normal = (input - mean[:, None]) / (variance[:, None] + epsilon).sqrt()
    return gamma * normal + beta, mean, variance


def shifted_sum(data_out, data_in, stride):
    return data_out + F.pad(data_in[stride:], (0, stride))


def modulated_norm(x, weight, bias):
    return F.layer_norm(x, x.shape[-1:]) * (1 + weight[:, None]) + bias[:, None]


def rope_halves(x, cos, sin):
    first, second = x.chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)


def exp_of_sum(x, y):
    return torch.exp((x + y) * 2)


def quantized(x, scale, zero_point):
    return torch.round(x / scale + zero_point).clamp(-128, 127).to(torch.int8)


def mhc_post(x, residual, post_layer_mix, comb_res_mix):
    mixed = comb_res_mix.transpose(-1, -2) @ residual.to(comb_res_mix.dtype)
    return (x.unsqueeze(-2) * post_layer_mix + mixed).to(x.dtype)


def rotary(timestamps, seq_len):
    places = torch.arange(0, 64, 2, device=timestamps.device)
    inverse = 10000.0 ** (-places.to(timestamps.dtype) / 64)
    parts = torch.arange(max(len(timestamps), seq_len), device=timestamps.device)
    parts = parts.to(timestamps.dtype) / 256
    by_batch = parts[: len(timestamps), None, None] * inverse
    by_time = parts[None, :seq_len, None] * 2 * torch.pi * inverse
    factors = torch.cat(torch.broadcast_tensors(by_batch, by_time), -1).repeat_interleave(2, -1)
    angles = factors * (-timestamps * 2 * torch.pi)[..., None]
    return angles.cos(), angles.sin()


def causal_tokens(query, key, value):
    heads = (t.transpose(0, 1) for t in (query, key, value))
    return F.scaled_dot_product_attention(*heads, is_causal=True).transpose(0, 1).flatten(1)


def butterflies(x, step):
    """One stage of a transform, of pairs that are so many elements apart."""
    first, second = torch.view_as_complex(x.reshape(-1, 2, step, 2)).unbind(1)
    angles = -torch.pi * torch.arange(step, device=x.device).to(x.dtype) / step
    turned = second * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(torch.stack((first + turned, first - turned), 1)).reshape(x.shape)


def sum_of_two(a, b):
    return torch.full((1,), a + b, dtype=torch.int32, device="cuda")


def layer_norm_of(X, gamma, beta):
    return F.layer_norm(X, X.shape[1:], gamma, beta)


def causal_rows(logits):
    size = logits.shape[-1]
    hidden = torch.ones(size, size, dtype=torch.bool, device=logits.device).triu(1)
    return logits.masked_fill(hidden, float("-inf")).softmax(-1)
