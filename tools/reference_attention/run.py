"""Times cuDNN's attention over pages on the GPU, as bench/lab/cuda_attention_bench.cpp times FlashInfer's.

Prints one JSON object a line. A row has one query; pages of 16 tokens, shuffled and rotated beyond the L2 cache; CUDA graphs,
random data, the median of nine replays after two that do not count. Every output is compared with float32 first.
Usage: run.py
"""

import json
import statistics

import cudnn
import torch

BEYOND_CACHE = 240 << 20
PAGE = 16
HEAD = 256
LIMIT = 2e-2  # of the largest output: queries, keys, values, probabilities and output are bf16


class Layer:
    def __init__(self, heads, kv_heads, rows, context):
        self.heads, self.kv_heads, self.rows, self.context = heads, kv_heads, rows, context
        self.row_pages = -(-context // PAGE)
        copy_bytes = 2 * rows * self.row_pages * PAGE * kv_heads * HEAD * 2
        self.copies = BEYOND_CACHE // copy_bytes + 2
        pages = self.copies * rows * self.row_pages
        draw = lambda *shape: torch.empty(shape, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1)
        # [pages, tokens, kv heads, head]: cuDNN is told the strides.
        self.keys = draw(pages, PAGE, kv_heads, HEAD)
        self.values = draw(pages, PAGE, kv_heads, HEAD)
        self.q = draw(rows, heads, 1, HEAD)
        self.out = torch.empty_like(self.q)
        self.tables = torch.randperm(pages, device="cuda", dtype=torch.int32).view(self.copies, rows, 1, self.row_pages, 1)
        self.lengths_q = torch.ones(rows, 1, 1, 1, device="cuda", dtype=torch.int32)
        self.lengths = torch.full((rows, 1, 1, 1), context, device="cuda", dtype=torch.int32)
        self.handle = cudnn.create_handle()
        self.build()

    def build(self):
        graph = cudnn.pygraph(
            io_data_type=cudnn.data_type.BFLOAT16,
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            handle=self.handle,
        )
        by_head = lambda t: t.permute(0, 2, 1, 3)  # [pages, kv heads, tokens, head]
        self.tensors = {
            "q": graph.tensor_like(self.q),
            "keys": graph.tensor_like(by_head(self.keys)),
            "values": graph.tensor_like(by_head(self.values)),
            "table_k": graph.tensor_like(self.tables[0]),
            "table_v": graph.tensor_like(self.tables[0]),
            "lengths_q": graph.tensor_like(self.lengths_q),
            "lengths": graph.tensor_like(self.lengths),
        }
        t = self.tensors
        self.result, _ = graph.sdpa(
            name="attention", q=t["q"], k=t["keys"], v=t["values"], attn_scale=HEAD**-0.5, is_inference=True,
            use_padding_mask=True, seq_len_q=t["lengths_q"], seq_len_kv=t["lengths"],
            paged_attention_k_table=t["table_k"], paged_attention_v_table=t["table_v"],
            paged_attention_max_seq_len_kv=self.context,
        )
        self.result.set_output(True).set_dim(list(self.out.shape)).set_stride(list(self.out.stride()))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
        self.workspace = torch.empty(graph.get_workspace_size(), device="cuda", dtype=torch.uint8)
        self.graph = graph

    def run(self, copy):
        cudnn.set_stream(handle=self.handle, stream=torch.cuda.current_stream().cuda_stream)
        t = self.tensors
        table = self.tables[copy % self.copies]
        by_head = lambda x: x.permute(0, 2, 1, 3)
        self.graph.execute(
            {
                t["q"]: self.q, t["keys"]: by_head(self.keys), t["values"]: by_head(self.values), t["table_k"]: table,
                t["table_v"]: table, t["lengths_q"]: self.lengths_q, t["lengths"]: self.lengths, self.result: self.out,
            },
            self.workspace, handle=self.handle,
        )

    def difference(self):
        self.out.fill_(float("nan"))
        self.run(0)
        table = self.tables[0].view(self.rows, self.row_pages).long()
        gather = lambda x: x[table].reshape(self.rows, self.row_pages * PAGE, self.kv_heads, HEAD)[:, : self.context].float()
        k, v = gather(self.keys), gather(self.values)
        q = self.q.float().view(self.rows, self.kv_heads, self.heads // self.kv_heads, HEAD)
        weights = torch.einsum("rhgd,rshd->rhgs", q, k).mul(HEAD**-0.5).softmax(-1)
        want = torch.einsum("rhgs,rshd->rhgd", weights, v).reshape(self.out.shape)
        return ((self.out.float() - want).abs().max() / want.abs().max()).item()

    def time_us(self):
        launches = max(self.copies, 12)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            self.run(0)
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for i in range(launches):
                    self.run(i)
            times = []
            for _ in range(11):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record(stream)
                graph.replay()
                end.record(stream)
                end.synchronize()
                times.append(begin.elapsed_time(end) * 1e3 / launches)
        return statistics.median(times[2:])


def main():
    torch.manual_seed(7)
    for heads in (16, 24):
        for context in (256, 1024, 4096):
            for rows in (1, 8, 32, 128):
                layer = Layer(heads, 4, rows, context)
                difference = layer.difference()
                if not difference < LIMIT:
                    raise SystemExit(f"{heads} heads, {rows} rows, {context} tokens: differs by {difference}, accepted below {LIMIT}")
                row = {"attention": f"cudnn {cudnn.backend_version()}", "heads": heads, "kv_heads": 4, "rows": rows, "context": context,
                       "us": round(layer.time_us(), 2), "difference": difference}
                print(json.dumps(row), flush=True)
                del layer
                torch.cuda.empty_cache()


main()
