"""Scores a model directory with transformers: greedy decoding, exact match, and MTP agreement.

    python score.py --model models/tiny [--device cuda] [--dtype bfloat16] [--json FILE]
"""

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import checkpoint
from mtp import MultiTokenPrediction


def read_eval(path: Path, limit: int) -> list[dict]:
    rows, counts = [], defaultdict(int)
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        counts[row["task"]] += 1
        if counts[row["task"]] <= limit:
            rows.append(row)
    return rows


@torch.inference_mode()
def answers(model, tokenizer, rows: list[dict], batch: int) -> list[str]:
    """Greedy answers; prompts of like length share a batch and are padded on the left."""
    prompts = [
        tokenizer.apply_chat_template(
            row["messages"], tools=row.get("tools"), add_generation_prompt=True, tokenize=False
        )
        for row in rows
    ]
    encoded = tokenizer(prompts, add_special_tokens=False).input_ids
    order = sorted(range(len(rows)), key=lambda i: (rows[i]["max_tokens"] // 16, len(encoded[i])))
    texts = [""] * len(rows)
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        width = max(len(encoded[i]) for i in chosen)
        ids = torch.full((len(chosen), width), tokenizer.pad_token_id)
        mask = torch.zeros_like(ids)
        for line, i in enumerate(chosen):
            ids[line, width - len(encoded[i]) :] = torch.tensor(encoded[i])
            mask[line, width - len(encoded[i]) :] = 1
        output = model.generate(
            input_ids=ids.to(model.device),
            attention_mask=mask.to(model.device),
            max_new_tokens=max(rows[i]["max_tokens"] for i in chosen),
            do_sample=False,
        )
        for line, i in enumerate(chosen):
            made = output[line, width : width + rows[i]["max_tokens"]]
            texts[i] = tokenizer.decode(made, skip_special_tokens=True).strip()
    return texts


@torch.inference_mode()
def mtp_agreement(folder: Path, model, tokenizer, rows: list[dict], batch: int) -> float:
    """How often the MTP head's best token is the trunk's best token, over expected answers."""
    trunk = model.model
    mtp = MultiTokenPrediction(model.config).to(model.device, model.dtype)
    mtp.layers[0].self_attn.config._attn_implementation = model.config._attn_implementation
    checkpoint.load_weights(folder, type(model)(model.config), mtp)
    agreed = total = 0
    for start in range(0, len(rows), batch):
        ids, first = [], []
        for row in rows[start : start + batch]:
            text = tokenizer.apply_chat_template(
                row["messages"], tools=row.get("tools"), add_generation_prompt=True, tokenize=False
            )
            prompt = tokenizer(text, add_special_tokens=False).input_ids
            answer = tokenizer(row["expected"] + "<|im_end|>", add_special_tokens=False).input_ids
            first.append(len(prompt))
            ids.append(prompt + answer)
        width = max(map(len, ids))
        tokens = torch.full((len(ids), width), tokenizer.pad_token_id, device=model.device)
        for line, row_ids in enumerate(ids):
            tokens[line, : len(row_ids)] = torch.tensor(row_ids)
        hidden = trunk(input_ids=tokens, use_cache=False).last_hidden_state
        best = model.lm_head(hidden).argmax(-1)
        positions = torch.arange(width - 1, device=model.device)[None].expand(len(ids), -1)
        rotary = trunk.rotary_emb(hidden, positions[None].expand(3, -1, -1))
        drafted = mtp(hidden[:, :-1], trunk.embed_tokens(tokens[:, 1:]), rotary)
        draft = model.lm_head(drafted).argmax(-1)  # at t: a guess at token t + 2
        for line, row_ids in enumerate(ids):
            span = slice(first[line] - 1, len(row_ids) - 2)
            agreed += (draft[line, span] == best[line, span.start + 1 : span.stop + 1]).sum().item()
            total += span.stop - span.start
    return agreed / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--eval", type=Path, help="default: eval.jsonl in the model directory")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--limit", type=int, default=500, help="prompts a task")
    parser.add_argument("--json", type=Path, help="write scores and wrong answers here")
    options = parser.parse_args()

    start = time.time()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(
        options.model, dtype=getattr(torch, options.dtype)
    ).to(options.device)
    model.eval()
    rows = read_eval(options.eval or options.model / "eval.jsonl", options.limit)
    right, asked, wrong = defaultdict(int), defaultdict(int), []
    for row, text in zip(rows, answers(model, tokenizer, rows, options.batch), strict=True):
        asked[row["task"]] += 1
        right[row["task"]] += text == row["expected"].strip()
        if text != row["expected"].strip():
            wrong.append({"task": row["task"], "messages": row["messages"][-1:],
                          "expected": row["expected"], "got": text})
    scores = {task: round(right[task] / asked[task], 4) for task in asked}
    agreement = round(mtp_agreement(options.model, model, tokenizer, rows, options.batch), 4)
    result = {"tasks": scores, "mtp_agreement": agreement, "dtype": options.dtype}
    print(json.dumps(result), f"{time.time() - start:.0f} s")
    if options.json:
        options.json.write_text(json.dumps(result | {"wrong": wrong}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
