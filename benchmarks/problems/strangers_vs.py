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
    return F.cross_entropy(logits, true_labels).reshape(1)


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
    return x.reshape(-1, 512).sum(1).int()


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
