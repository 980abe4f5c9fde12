"""Times the recurrent step and the chunk kernels of flash-linear-attention on the GPU, as `replayssm bench` times ours.

For tools/bench_cuda.sh: prints one JSON object a line. A step has one token a row and reads and writes the state: a reference
for packed_step. A chunk begins with a zero state and ends with one in fp32: a reference for prefill. As in our rows: CUDA graphs,
memories rotated beyond the L2 cache, random data, the median of nine replays after two that do not count. Every row's output
is compared with float64 first, and a wrong one ends the program.

REFERENCE_PARTS=chunks (or steps) times one of the two alone. GDN steps are timed with fp32 states only: their function writes fp32 states whatever it reads. KDA updates states in place.
"""

import importlib.metadata
import json
import os
import statistics

import torch
from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
from fla.ops.kda import chunk_kda
from fla.ops.kda.fused_recurrent import fused_recurrent_kda_fwd

BEYOND_CACHE = 400 << 20
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LIMIT = 5e-3  # outputs are rounded to bf16: 2^-9 each at most
CHUNK_LIMIT = 2e-2  # and so are the operands of its matrix products
CHUNKS = ((1, 8192), (16, 1024))  # rows, tokens


class Inputs:
    def __init__(self, gate, batch, heads, tokens=1):
        value_heads, key_heads = heads
        width = () if gate == "gdn" else (128,)
        draw = lambda *shape: torch.empty(shape, device="cuda").uniform_(-1, 1)
        self.q = draw(batch, tokens, key_heads, 128).bfloat16()
        self.k = draw(batch, tokens, key_heads, 128).bfloat16()
        self.v = draw(batch, tokens, value_heads, 128).bfloat16()
        self.g = -0.3 * torch.rand(batch, tokens, value_heads, *width, device="cuda") - 0.001
        self.beta = 0.1 + 0.8 * torch.rand(batch, tokens, value_heads, device="cuda")


def step(gate, x, state):
    """The output [batch, 1, value heads, V] of one step from `state` [batch, value heads, V, K]."""
    options = dict(
        q=x.q, k=x.k, v=x.v, g=x.g, beta=x.beta, initial_state=state, output_final_state=True,
        use_qk_l2norm_in_kernel=True, state_v_first=True,
    )
    if gate == "gdn":
        return fused_recurrent_gated_delta_rule(**options)[0]
    return fused_recurrent_kda_fwd(**options, inplace_final_state=True)[0]


class Token:
    """Token i of some inputs, as inputs of one token."""

    def __init__(self, x, i):
        self.q, self.k, self.v, self.g, self.beta = (t[:, i : i + 1] for t in (x.q, x.k, x.v, x.g, x.beta))


def unit(t, group):
    t = t[:, 0].double().repeat_interleave(group, 1)
    return t / (t.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def next_state(gate, x, state):
    k = unit(x.k, x.v.shape[2] // x.k.shape[2])
    a = x.g[:, 0].double().exp()
    s = state.double() * (a[..., None, None] if gate == "gdn" else a[..., None, :])
    d = x.beta[:, 0, :, None].double() * (x.v[:, 0].double() - torch.einsum("bhvk,bhk->bhv", s, k))
    return s + d[..., None] * k[..., None, :]


def expected(gate, x, state):
    """The same in float64."""
    q = unit(x.q, x.v.shape[2] // x.k.shape[2])
    return torch.einsum("bhvk,bhk->bhv", next_state(gate, x, state), q) * 128**-0.5


def chunk(gate, x):
    """The outputs [batch, tokens, value heads, V] of a chunk from a zero state."""
    kernels = chunk_gated_delta_rule if gate == "gdn" else chunk_kda
    return kernels(
        q=x.q, k=x.k, v=x.v, g=x.g, beta=x.beta, output_final_state=True, use_qk_l2norm_in_kernel=True
    )[0]


def chunk_expected(gate, x, tokens):
    """The first `tokens` of them in float64, token by token."""
    state = torch.zeros(x.v.shape[0], x.v.shape[2], 128, 128, dtype=torch.float64, device="cuda")
    outputs = []
    for i in range(tokens):
        token = Token(x, i)
        outputs.append(expected(gate, token, state))
        state = next_state(gate, token, state)
    return torch.stack(outputs, 1)


def time_us(run, launches):
    """Microseconds of one of `launches` calls run(i), captured in one graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run(0)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(launches):
            run(i)
    times = []
    for turn in range(11):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(stream):
            begin.record()
            graph.replay()
            end.record()
        stream.synchronize()
        if turn >= 2:
            times.append(begin.elapsed_time(end) * 1000 / launches)
    return statistics.median(times)


def check(what, got, want, limit):
    error = ((got.double() - want).norm() / want.norm()).item()
    if not error < limit:
        raise SystemExit(f"{what}: error {error}")
    return error


def report(op, gate, dtype, heads, batch, time, error, **more):
    row = {
        "op": op, "reference": "fla-core " + importlib.metadata.version("fla-core"), "gate": gate,
        "state_dtype": "fp32" if dtype == torch.float32 else "bf16",
        "value_heads": heads[0], "key_heads": heads[1], "batch": batch, **more,
        "time_us": round(time, 3), "max_error": error,
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
    }
    print(json.dumps(row), flush=True)


def steps():
    cases = [("gdn", torch.float32, (48, 16)), ("kda", torch.float32, (32, 32)), ("kda", torch.bfloat16, (32, 32))]
    for gate, dtype, heads in cases:
        for batch in BATCHES:
            x = Inputs(gate, batch, heads)
            size = batch * heads[0] * 128 * 128 * dtype.itemsize
            count = min(max(BEYOND_CACHE // size, 2), 96)
            states = [torch.empty(batch, heads[0], 128, 128, device="cuda").uniform_(-0.05, 0.05).to(dtype) for _ in range(count)]
            error = check(
                f"{gate} {dtype} batch {batch}", step(gate, x, states[0].clone())[:, 0], expected(gate, x, states[0]), LIMIT
            )
            time = time_us(lambda i: step(gate, x, states[i % count]), max(count, 16))
            report("packed_step", gate, dtype, heads, batch, time, error)
            del states


def chunks():
    """The inputs of a chunk are larger than the L2 cache. GDN gets its keys and queries once for each value head where
    the kernels have no notion of groups."""
    for gate, heads in (("gdn", (48, 16)), ("kda", (32, 32))):
        for batch, tokens in CHUNKS:
            x = Inputs(gate, batch, heads, tokens)
            checked = 200
            want = chunk_expected(gate, x, checked)
            repeated = False
            try:
                got = chunk(gate, x)
            except (AssertionError, RuntimeError, ValueError):
                got = None
            if got is None or got.shape != x.v.shape:
                x.q, x.k = (t.repeat_interleave(heads[0] // heads[1], 2) for t in (x.q, x.k))
                repeated, got = True, chunk(gate, x)
            error = check(f"{gate} chunk {batch} x {tokens}", got[:, :checked], want, CHUNK_LIMIT)
            time = time_us(lambda i: chunk(gate, x), 4)
            report("prefill", gate, torch.float32, heads, batch, time, error, window=tokens, repeated_keys=repeated)


@torch.no_grad()
def main():
    torch.manual_seed(7)
    parts = os.environ.get("REFERENCE_PARTS", "steps chunks").split()
    if "steps" in parts:
        steps()
    if "chunks" in parts:
        chunks()


main()
