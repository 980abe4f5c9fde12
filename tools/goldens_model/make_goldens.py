"""Makes the checkpoints and golden files of tests/data/model.

    python -m pip install -r tools/goldens_model/requirements.txt
    python tools/goldens_model/make_goldens.py tests/data/model

Each case becomes a directory with a checkpoint in Hugging Face form and `golden.safetensors`, which
holds what transformers computes for it on the CPU: one forward pass over each of two prompts, and 16
greedy tokens after the second. For float8 checkpoints it is given the weights dequantised here, since
its own dequantisation has no ragged blocks. Names in the golden file, with TYPE float32 (weights
widened) and, for checkpoints stored in bfloat16, bfloat16 (weights and activations):

    prompt.P.ids                    [n] int32
    TYPE.prompt.P.layers.N.mixer    [n, hidden] output of the layer's mixer, before the residual
    TYPE.prompt.P.layers.N.output   [n, hidden] output of the layer
    TYPE.prompt.P.logits            [n, rows]
    TYPE.state.N                    [value_heads, V, K] of linear layer N after prompt 1
    TYPE.greedy.ids                 [16] int32, after prompt 1
    TYPE.greedy.logits              [16, rows], the logits that each of them was chosen from
"""

import argparse
import importlib.util
import json
import math
import os
import pathlib
import shutil

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from cases import CASES, VOCAB_ROWS, Case
from families import FAMILIES, float8_config

PROMPT_LENGTHS = (37, 80)
GREEDY_TOKENS = 16
LARGEST_FILE = 2 * 1024 * 1024
MTP_WIDTH = 16
BLOCK = 128
LARGEST_E4M3 = 448.0
DEQUANTISED = "dequantised"  # a directory that is there while goldens are made


def require_plain_torch() -> None:
    """Other kernels than transformers' own torch code would make other numbers."""
    for package in ("fla", "causal_conv1d", "kernels"):
        if importlib.util.find_spec(package):
            raise SystemExit(f"{package} is installed; use an environment without it")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


def initial_value(
    family: str, name: str, shape: torch.Size, random: torch.Generator
) -> torch.Tensor:
    """Values under which every term of the forward pass matters: a wrong order of rows, a missing
    1 + w or a dropped gate changes the logits by far more than rounding does."""
    normal = torch.randn(shape, generator=random)
    uniform = torch.rand(shape, generator=random)
    leaf = name.removesuffix(".weight").rsplit(".", 1)[-1]
    plain_norms = family == "kimi_linear"
    if leaf == "A_log":
        return -4 + 5 * uniform  # with dt_bias: gates from almost none to almost all forgotten
    if leaf == "dt_bias":
        return -3 + 4 * uniform
    if leaf == "conv1d":
        return 0.5 * normal
    if leaf == "embed_tokens":
        return normal
    if "linear_attn.norm" in name or leaf == "o_norm" or ("norm" in leaf and plain_norms):
        return 1 + 0.3 * normal
    if "norm" in leaf:
        return 0.3 * normal
    if leaf == "lm_head":
        return 0.3 * normal
    if leaf == "out_proj" or leaf == "o_proj":
        return normal / math.sqrt(shape[-1]) * 2
    return normal / math.sqrt(shape[-1]) if normal.dim() > 1 else 0.1 * normal


def write_checkpoint(case: Case, directory: pathlib.Path) -> None:
    random = torch.Generator().manual_seed(case.seed)
    family = FAMILIES[case.family]
    config = family.config(case)
    config_file = directory / "config.json"
    config_file.write_text(json.dumps(config, indent=1) + "\n")
    state = family.model(case, directory).state_dict()
    names = sorted(name for name in state if not (case.tied and name == "lm_head.weight"))
    stored = getattr(torch, case.stored)
    tensors = {}
    for name in names:
        shape = state[name].shape
        keep = case.float32_gates and name.rsplit(".", 1)[-1] in ("A_log", "dt_bias")
        tensors[name] = initial_value(case.family, name, shape, random).to(stored)
        if keep:
            tensors[name] = tensors[name].float()
    if case.draft_head:
        tensors["mtp.fc.weight"] = torch.randn((MTP_WIDTH, 2 * MTP_WIDTH), generator=random).to(stored)
        tensors["mtp.norm.weight"] = torch.randn((MTP_WIDTH,), generator=random).to(stored)
    tensors = family.published(tensors)
    if case.float8:
        dequantised = directory / DEQUANTISED
        dequantised.mkdir()
        shutil.copy(config_file, dequantised)
        tensors, plain = quantise(tensors, case.not_float8)
        write_shards(case, plain, dequantised)
        left_alone = sorted(
            name.removesuffix(".weight")
            for name, tensor in tensors.items()
            if is_linear(name) and tensor.dtype == stored
        )
        config.update(float8_config(left_alone))
        config_file.write_text(json.dumps(config, indent=1) + "\n")
    write_shards(case, tensors, directory)
    if case.tokens < VOCAB_ROWS:
        write_tokenizer(case, directory)


def is_linear(name: str) -> bool:
    return name.endswith(".weight") and ("_proj" in name or "lm_head" in name)


def quantise(tensors: dict, leave: tuple) -> tuple[dict, dict]:
    """Linear weights W [rows, cols] as W.weight (e4m3) and W.weight_scale_inv, the multiplier of each
    block; and beside these the weights that they stand for, rounded to bfloat16."""
    stored, plain = {}, {}
    for name, weight in tensors.items():
        stored[name] = plain[name] = weight
        module = name.removesuffix(".weight")
        if not is_linear(name) or module.rsplit(".", 1)[-1] in leave:
            continue
        rows, cols = weight.shape
        scales = torch.empty(-(-rows // BLOCK), -(-cols // BLOCK))
        codes = torch.empty(rows, cols, dtype=torch.float8_e4m3fn)
        exact = torch.empty(rows, cols, dtype=torch.float64)
        for i in range(scales.shape[0]):
            for j in range(scales.shape[1]):
                block = (slice(i * BLOCK, (i + 1) * BLOCK), slice(j * BLOCK, (j + 1) * BLOCK))
                values = weight[block].float()
                # In bfloat16, as published; dequantisation multiplies by what is stored.
                scales[i, j] = (values.abs().max() / LARGEST_E4M3).bfloat16().float()
                codes[block] = (values / scales[i, j]).clamp(-LARGEST_E4M3, LARGEST_E4M3).to(codes.dtype)
                exact[block] = codes[block].double() * scales[i, j].double()
        stored[name] = codes
        stored[module + ".weight_scale_inv"] = scales.bfloat16()
        plain[name] = exact.bfloat16()
    return stored, plain


def write_shards(case: Case, tensors: dict, directory: pathlib.Path) -> None:
    metadata = {"format": "pt"}
    if case.shards == 1:
        save_file(tensors, directory / "model.safetensors", metadata)
        return
    weight_map = {}
    for shard in range(case.shards):
        file = f"model-{shard + 1:05}-of-{case.shards:05}.safetensors"
        part = {name: tensors[name] for name in sorted(tensors)[shard :: case.shards]}
        save_file(part, directory / file, metadata)
        weight_map.update({name: file for name in part})
    size = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def write_tokenizer(case: Case, directory: pathlib.Path) -> None:
    """A byte-level vocabulary of case.tokens ids, two of them special, each named as an end of
    generation by one file only."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [(a, b) for a in "abcdefghijklmnopqrstuvwxyz" for b in "aeiouy rstlnm"]
    pairs = [(a, b.replace(" ", "Ġ")) for a, b in pairs][: case.tokens - 2 - len(letters)]
    vocab = {token: i for i, token in enumerate(letters + [a + b for a, b in pairs])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>"), AddedToken("<|im_end|>")])
    assert tokenizer.get_vocab_size() == case.tokens
    tokenizer.save(str(directory / "tokenizer.json"), pretty=False)
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}) + "\n")


def run(case: Case, directory: pathlib.Path, type_name: str, prompts: list, golden: dict) -> None:
    family = FAMILIES[case.family]
    source = directory / DEQUANTISED if case.float8 else directory
    model = family.loaded(case, source, getattr(torch, type_name))
    model.eval()
    text_model = family.decoder(model)
    recorded = {}

    def record(name):
        def hook(module, inputs, output):
            value = output[0] if isinstance(output, tuple) else output
            recorded[name] = value[0].float().contiguous()

        return hook

    for n, layer in enumerate(text_model.layers):
        mixer = layer.linear_attn if hasattr(layer, "linear_attn") else layer.self_attn
        mixer.register_forward_hook(record(f"layers.{n}.mixer"))
        layer.register_forward_hook(record(f"layers.{n}.output"))

    for p, prompt in enumerate(prompts):
        cache = transformers.DynamicCache(config=text_model.config)
        extra = family.arguments(len(prompt))
        logits = model(input_ids=prompt[None], cache=cache, use_cache=True, **extra).logits[0].float()
        for name, value in recorded.items():
            golden[f"{type_name}.prompt.{p}.{name}"] = value
        golden[f"{type_name}.prompt.{p}.logits"] = logits

    linear = [n for n, kind in enumerate(text_model.config.layer_types) if kind == "linear_attention"]
    state = cache.get_recurrent_state(linear[-1])[0]  # [value_heads, K, V]
    golden[f"{type_name}.state.{linear[-1]}"] = state.float().transpose(1, 2).contiguous()

    ids, chosen_from = [], []
    for _ in range(GREEDY_TOKENS):
        chosen_from.append(logits[-1])
        ids.append(int(logits[-1, : case.tokens].argmax()))
        step = torch.tensor([[ids[-1]]])
        logits = model(
            input_ids=step, cache=cache, use_cache=True, **family.arguments(1)
        ).logits[0].float()
    golden[f"{type_name}.greedy.ids"] = torch.tensor(ids, dtype=torch.int32)
    golden[f"{type_name}.greedy.logits"] = torch.stack(chosen_from)


@torch.no_grad()
def make(case: Case, root: pathlib.Path) -> None:
    directory = root / case.name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    write_checkpoint(case, directory)

    random = numpy.random.default_rng(case.seed)
    prompts = [
        torch.from_numpy(random.integers(0, case.tokens - 2, size=length)) for length in PROMPT_LENGTHS
    ]
    golden = {f"prompt.{p}.ids": prompt.to(torch.int32) for p, prompt in enumerate(prompts)}
    run(case, directory, "float32", prompts, golden)
    if case.stored == "bfloat16":
        run(case, directory, "bfloat16", prompts, golden)
    shutil.rmtree(directory / DEQUANTISED, ignore_errors=True)
    # One entry: the order of several would change from run to run.
    metadata = {"made_with": f"torch {torch.__version__}, transformers {transformers.__version__}"}
    save_file(golden, directory / "golden.safetensors", metadata)

    for file in sorted(directory.iterdir()):
        print(f"{file.stat().st_size:>9} {case.name}/{file.name}")
        if file.stat().st_size > LARGEST_FILE:
            raise SystemExit(f"{file} is larger than {LARGEST_FILE} bytes")
    logits = golden["float32.prompt.1.logits"]
    top = logits.topk(2, -1).values
    print(f"  logits: std {logits.std():.3f}, smallest margin {(top[:, 0] - top[:, 1]).min():.2e}")
    for n in range(case.layers):
        print(f"  layer {n}: rms {golden[f'float32.prompt.1.layers.{n}.output'].square().mean().sqrt():.3f}"
              f" mixer {golden[f'float32.prompt.1.layers.{n}.mixer'].square().mean().sqrt():.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--case", help="make only this one")
    arguments = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    require_plain_torch()
    for case in CASES:
        if arguments.case in (None, case.name):
            make(case, arguments.root)


if __name__ == "__main__":
    main()
