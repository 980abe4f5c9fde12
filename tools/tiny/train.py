"""Trains the model and its MTP head for a given wall-clock time.

    python train.py --model models/tiny --prose prose.npz --filler corpus/austen.jsonl \
        --out DIR --device cuda --seconds 1000

The learning rate falls linearly to zero at the end of the time, whatever the machine's speed.
"""

import argparse
import os
import shutil
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

import checkpoint
import delta_rule
import packing

CLASS_WEIGHTS = (0.05, 1.0, 3.0)  # context, prose, answer
MTP_WEIGHT = 0.3


def token_losses(hidden, head, targets):
    """Cross entropy of each token: hidden [batch, tokens, width], head [vocabulary, width]."""
    logits = F.linear(hidden, head).float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)


def losses(model, mtp, ids, weights, token_losses):
    """Weighted loss of the trunk and of the MTP head, and the trunk's loss of each token."""
    trunk = model.model
    hidden = trunk(input_ids=ids, use_cache=False).last_hidden_state
    head = model.lm_head.weight
    each = token_losses(hidden[:, :-1], head, ids[:, 1:])
    loss = (each * weights[:, 1:]).sum() / weights[:, 1:].sum()

    # The head learns from the trunk without changing it; the last position has no next token.
    still = hidden.detach()
    positions = torch.arange(ids.shape[1], device=ids.device)[None, None].expand(3, 1, -1)
    rotary = trunk.rotary_emb(still, positions)
    next_embedding = F.embedding(ids.roll(-1, 1), head.detach())
    drafted = mtp(still, next_embedding, rotary)
    mtp_each = token_losses(drafted[:, :-2], head.detach(), ids[:, 2:])
    mtp_loss = (mtp_each * weights[:, 2:]).sum() / weights[:, 2:].sum()
    return loss, mtp_loss, each.detach()


def make_optimizer(modules, learning_rate: float, device: str):
    decayed, kept = [], []
    for module in modules:
        for name, weight in module.named_parameters():
            plain = weight.ndim == 2 and "embed_tokens" not in name
            (decayed if plain else kept).append(weight)
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": kept, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95), fused=device == "cuda")


def save(options, model, mtp) -> None:
    partial = options.out.with_name(options.out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    checkpoint.save(partial, model, mtp)
    shutil.rmtree(options.out, ignore_errors=True)
    partial.rename(options.out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="has tokenizer and template")
    parser.add_argument("--prose", type=Path, required=True, help="made by packing.py")
    parser.add_argument("--filler", type=Path, required=True, help="corpus file for long prompts")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start-from", type=Path, help="directory of weights to go on from")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=1000, help="from process start")
    parser.add_argument("--save-every", type=float, default=120, help="seconds")
    parser.add_argument("--steps", type=int, default=10**9, help="stop earlier after these steps")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--warmup", type=int, default=150, help="steps")
    parser.add_argument("--layers", type=int, default=checkpoint.LAYERS)
    parser.add_argument("--implementation", default="torch", choices=("torch", "fla"))
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--log-every", type=int, default=50)
    options = parser.parse_args()

    start = time.time()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    rows = packing.Rows(
        options.model, options.prose, options.filler, options.rows, options.length, options.seed
    )
    loader = DataLoader(
        rows,
        batch_size=None,
        num_workers=options.workers,
        pin_memory=options.device == "cuda",
        prefetch_factor=4 if options.workers else None,
    )
    batches = iter(loader)  # starts the workers before the GPU is touched

    torch.manual_seed(options.seed)
    if options.device == "cuda":
        torch.set_float32_matmul_precision("high")
    delta_rule.install(options.implementation)
    model, mtp = checkpoint.create(options.model, options.layers)
    if options.start_from:
        checkpoint.load_weights(options.start_from, model, mtp)
    model.to(options.device).train()
    mtp.to(options.device).train()
    mtp.layers[0].self_attn.config._attn_implementation = model.config._attn_implementation
    optimizer = make_optimizer((model, mtp), options.learning_rate, options.device)
    parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
    print(f"{sum(weight.numel() for weight in parameters) / 1e6:.2f} M parameters", flush=True)

    each_token = token_losses
    if options.compile:
        torch._dynamo.config.recompile_limit = 64
        for layer in (*model.model.layers, *mtp.layers):
            layer.compile(dynamic=False)
        each_token = torch.compile(token_losses, dynamic=False)
    class_weights = torch.tensor(CLASS_WEIGHTS, device=options.device)

    saved = time.time()
    tokens, counted, last, step = 0, 0, time.time(), 0
    while step < options.steps and (elapsed := time.time() - start) < options.seconds:
        rate = options.learning_rate * min((step + 1) / options.warmup, 1)
        for group in optimizer.param_groups:
            group["lr"] = rate * max(1 - elapsed / options.seconds, 0.0)
        ids, classes = (x.to(options.device, non_blocking=True).long() for x in next(batches))
        with torch.autocast(options.device, torch.bfloat16, enabled=options.device == "cuda"):
            loss, mtp_loss, each = losses(model, mtp, ids, class_weights[classes], each_token)
        (loss + MTP_WEIGHT * mtp_loss).backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        if options.device == "cuda":  # the fused step leaves the weights alone if this is 1
            optimizer.found_inf = (~norm.isfinite()).float()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        tokens += ids.numel()
        step += 1
        if step == 1 or step % options.log_every == 0:
            by_class = [each[classes[:, 1:] == kind].mean().item() for kind in range(3)]
            now = time.time()
            print(
                f"step {step} {now - start:.0f} s {tokens / 1e6:.1f} Mtok"
                f" {(tokens - counted) / (now - last) / 1e3:.0f} ktok/s"
                f" context {by_class[0]:.3f} prose {by_class[1]:.3f} answer {by_class[2]:.4f}"
                f" mtp {mtp_loss.item():.3f} norm {norm.item():.2f}",
                flush=True,
            )
            last, counted = now, tokens
        if time.time() - saved > options.save_every:
            save(options, model, mtp)
            saved = time.time()
    save(options, model, mtp)
    print(f"done: {step} steps, {tokens / 1e6:.1f} Mtok, {time.time() - start:.0f} s", flush=True)
    os._exit(0)  # the workers never end by themselves


if __name__ == "__main__":
    main()
