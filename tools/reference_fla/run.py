"""Times the recurrent step of flash-linear-attention on the GPU, as `replayssm bench` times ours.

For tools/bench_cuda.sh: prints one JSON object a line. One token a row: the state is read and written, so these are references
for packed_step. As in our rows: CUDA graphs, memories rotated beyond the L2 cache, random data, the median of nine
replays after two that do not count. Every row's output is compared with float64 first, and a wrong one ends the program.

GDN is timed with fp32 states only: its function writes fp32 states whatever it reads. KDA updates states in place.
"""

import importlib.metadata
import json
import statistics

import torch
from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule
from fla.ops.kda.fused_recurrent import fused_recurrent_kda_fwd

BEYOND_CACHE = 400 << 20
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LIMIT = 5e-3  # outputs are rounded to bf16: 2^-9 each at most


class Inputs:
    def __init__(self, gate, batch, heads):
        value_heads, key_heads = heads
        width = () if gate == "gdn" else (128,)
        draw = lambda *shape: torch.empty(shape, device="cuda").uniform_(-1, 1)
        self.q = draw(batch, 1, key_heads, 128).bfloat16()
        self.k = draw(batch, 1, key_heads, 128).bfloat16()
        self.v = draw(batch, 1, value_heads, 128).bfloat16()
        self.g = -0.3 * torch.rand(batch, 1, value_heads, *width, device="cuda") - 0.001
        self.beta = 0.1 + 0.8 * torch.rand(batch, 1, value_heads, device="cuda")


def step(gate, x, state):
    """The output [batch, 1, value heads, V] of one step from `state` [batch, value heads, V, K]."""
    options = dict(
        q=x.q, k=x.k, v=x.v, g=x.g, beta=x.beta, initial_state=state, output_final_state=True,
        use_qk_l2norm_in_kernel=True, state_v_first=True,
    )
    if gate == "gdn":
        return fused_recurrent_gated_delta_rule(**options)[0]
    return fused_recurrent_kda_fwd(**options, inplace_final_state=True)[0]


def expected(gate, x, state):
    """The same in float64."""
    group = x.v.shape[2] // x.k.shape[2]
    unit = lambda t: t / (t.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    q, k = (unit(t[:, 0].double().repeat_interleave(group, 1)) for t in (x.q, x.k))
    a = x.g[:, 0].double().exp()
    s = state.double() * (a[..., None, None] if gate == "gdn" else a[..., None, :])
    d = x.beta[:, 0, :, None].double() * (x.v[:, 0].double() - torch.einsum("bhvk,bhk->bhv", s, k))
    s = s + d[..., None] * k[..., None, :]
    return torch.einsum("bhvk,bhk->bhv", s, q) * 128**-0.5


def time_us(gate, x, states):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(gate, x, states[0])
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    launches = max(len(states), 16)
    with torch.cuda.graph(graph, stream=stream):
        for i in range(launches):
            step(gate, x, states[i % len(states)])
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


@torch.no_grad()
def main():
    torch.manual_seed(7)
    version = "fla-core " + importlib.metadata.version("fla-core")
    cases = [("gdn", torch.float32, (48, 16)), ("kda", torch.float32, (32, 32)), ("kda", torch.bfloat16, (32, 32))]
    for gate, dtype, heads in cases:
        for batch in BATCHES:
            x = Inputs(gate, batch, heads)
            size = batch * heads[0] * 128 * 128 * dtype.itemsize
            count = min(max(BEYOND_CACHE // size, 2), 96)
            states = [torch.empty(batch, heads[0], 128, 128, device="cuda").uniform_(-0.05, 0.05).to(dtype) for _ in range(count)]
            want = expected(gate, x, states[0])
            got = step(gate, x, states[0].clone())[:, 0].double()
            error = ((got - want).norm() / want.norm()).item()
            if not error < LIMIT:
                raise SystemExit(f"{gate} {dtype} batch {batch}: error {error}")
            row = {
                "op": "packed_step", "reference": version, "gate": gate, "state_dtype": "fp32" if dtype == torch.float32 else "bf16",
                "value_heads": heads[0], "key_heads": heads[1], "batch": batch,
                "time_us": round(time_us(gate, x, states), 3), "max_error": error,
                "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
            }
            print(json.dumps(row), flush=True)
            del states


main()
