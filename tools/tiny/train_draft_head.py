"""Goes on training the MTP head alone, on chains of its own drafts; the trunk stays as it is.

    python train_draft_head.py --model ../../models/tiny --prose prose.npz \
        --filler corpus/austen.jsonl --out DIR --device cuda --seconds 120

train.py teaches the head one token ahead. A draft further ahead reads the head's own output in
place of the trunk's hidden state, which is what the later links of a chain are trained on here.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

import checkpoint
import delta_rule
import packing
from train import make_optimizer, token_losses

CLASS_WEIGHTS = (0.02, 0.3, 3.0)  # context, prose, answer


def chain_losses(trunk, head, mtp, ids, weights, links: int) -> list[torch.Tensor]:
    """Weighted loss of each link. Link n drafts the token after the next at every position, from
    the trunk's hidden state n - 1 positions before it and the tokens since."""
    with torch.no_grad():
        hidden = trunk(input_ids=ids, use_cache=False).last_hidden_state
    positions = torch.arange(ids.shape[1], device=ids.device)[None, None].expand(3, 1, -1)
    rotary = trunk.rotary_emb(hidden, positions)
    next_embedding = F.embedding(ids.roll(-1, 1), head)
    each = []
    for link in range(links):
        hidden = mtp(hidden, next_embedding, rotary)
        counted = weights[:, 2 + link :]
        loss = token_losses(hidden[:, link:-2], head, ids[:, 2 + link :])
        each.append((loss * counted).sum() / counted.sum())
        hidden = hidden.roll(1, 1)
    return each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="the model to go on from")
    parser.add_argument("--prose", type=Path, required=True, help="made by packing.py")
    parser.add_argument("--filler", type=Path, required=True, help="corpus file for long prompts")
    parser.add_argument("--out", type=Path, required=True, help="gets the weights")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=120, help="from process start")
    parser.add_argument("--links", type=int, default=3, help="drafts in a chain")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=50, help="steps")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--log-every", type=int, default=50)
    options = parser.parse_args()

    start = time.time()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    rows = packing.Rows(
        options.model, options.prose, options.filler, options.rows, options.length, options.seed
    )
    batches = iter(DataLoader(rows, batch_size=None, num_workers=options.workers))
    torch.manual_seed(options.seed)
    delta_rule.install("torch")
    model, mtp = checkpoint.create(options.model)
    checkpoint.load_weights(options.model, model, mtp)
    model.to(options.device).eval().requires_grad_(False)
    mtp.to(options.device).train()
    mtp.layers[0].self_attn.config._attn_implementation = model.config._attn_implementation
    optimizer = make_optimizer((mtp,), options.learning_rate, options.device)
    class_weights = torch.tensor(CLASS_WEIGHTS, device=options.device)

    step = 0
    while (elapsed := time.time() - start) < options.seconds:
        share = min((step + 1) / options.warmup, 1) * (1 - elapsed / options.seconds)
        for group in optimizer.param_groups:
            group["lr"] = options.learning_rate * share
        ids, classes = (x.to(options.device).long() for x in next(batches))
        with torch.autocast(options.device, torch.bfloat16, enabled=options.device == "cuda"):
            each = chain_losses(
                model.model, model.lm_head.weight, mtp, ids, class_weights[classes], options.links
            )
        sum(each).backward()
        torch.nn.utils.clip_grad_norm_(mtp.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step == 1 or step % options.log_every == 0:
            shown = " ".join(f"{loss.item():.4f}" for loss in each)
            print(f"step {step} {time.time() - start:.0f} s losses of the links {shown}", flush=True)
    checkpoint.save(options.out, model, mtp)
    print(f"done: {step} steps, {time.time() - start:.0f} s", flush=True)
    os._exit(0)  # the workers never end by themselves


if __name__ == "__main__":
    main()
