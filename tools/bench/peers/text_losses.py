#!/usr/bin/env python3
"""nanoGPT's recipe in PyTorch beside a job of //tools:train on a text, step by step: docs/large_models.md.

  python3 tools/bench/peers/text_losses.py METRICS_FILE INITIAL_WEIGHTS [--learning_rates=nanogpt] [--dtype=float64]

The settings and losses of the job are those of its --metrics_file; INITIAL_WEIGHTS is a folder as //tools:export
writes it. Trains a GPT-2 with these weights on the same windows of the same token file: PyTorch's DistributedSampler,
AdamW whose weight decay is that of matrices alone, warm-up and cosine, the gradients' norm clipped. Prints both losses
side by side, how far apart they are, and what both score on the validation file. --learning_rates=nanogpt takes
nanoGPT's own formula instead of the job's rates, from which it differs in the warm-up by a step. --dtype=float64 trains
PyTorch's model in double, and the job's stays what it was: what is left is what the job's own rounding comes to.
"""

import argparse
import json
import math
import os
import sys
import time

import torch
from torch.utils.data import DistributedSampler

from common import cross_entropy, read_safetensors
from models import Gpt2

TOKEN_DTYPES = {2: torch.uint16, 4: torch.uint32}


def read_events(path):
    with open(path) as file:
        events = [json.loads(line) for line in file]
    by_kind = {}
    for event in events:
        by_kind.setdefault(event["event"], []).append(event)
    return by_kind


def read_tokens(path):
    """docs/large_models.md has the format."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    if data[:8] != b"TANDEMTK":
        sys.exit(f"{path} is no token file of //tools:tokenize")
    width = int.from_bytes(data[12:16], "little")
    count = int.from_bytes(data[24:32], "little")
    tokens = torch.frombuffer(data, dtype=TOKEN_DTYPES[width], count=count, offset=64)
    return tokens.to(torch.int64)


class Windows:
    """Sample i is the `context` tokens from i x context on, and the same one token later."""

    def __init__(self, path, context):
        self.tokens = read_tokens(path)
        self.context = context

    def __len__(self):
        return (len(self.tokens) - 1) // self.context

    def batch(self, indices):
        begins = torch.tensor(indices).unsqueeze(1) * self.context
        places = begins + torch.arange(self.context + 1)
        tokens = self.tokens[places]
        return tokens[:, :-1], tokens[:, 1:].contiguous()


def batches(windows, size, seed):
    """Forever."""
    sampler = DistributedSampler(
        windows, num_replicas=1, rank=0, seed=seed, drop_last=True
    )
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        order = list(sampler)
        for begin in range(0, len(order) - size + 1, size):
            yield windows.batch(order[begin : begin + size])
        epoch += 1


def read_model(folder, dtype):
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    state = read_safetensors(os.path.join(folder, "model.safetensors"))
    sizes = ("n_layer", "n_embd", "n_head", "n_positions", "vocab_size")
    model = Gpt2(*(config[size] for size in sizes))
    if config["tie_word_embeddings"]:
        model.lm_head.weight = model.transformer["wte"].weight
        state["lm_head.weight"] = state["transformer.wte.weight"]
    model.load_state_dict(state)
    return model.to(dtype)


def make_optimizer(model, settings):
    """nanoGPT's two groups: matrices decay, biases and LayerNorms do not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2]},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups,
        lr=settings["learning_rate"],
        betas=(settings["adam_beta1"], settings["adam_beta2"]),
        eps=settings["adam_eps"],
        weight_decay=settings["weight_decay"],
        fused=True,
    )


def nanogpt_learning_rate(step, settings):
    """Of step `step`, from 0."""
    peak, warm_up = settings["learning_rate"], settings["lr_warmup_steps"]
    if step < warm_up:
        return peak * (step + 1) / (warm_up + 1)
    least = settings["min_learning_rate"]
    done = (step - warm_up) / (settings["max_steps"] - warm_up)
    return least + (peak - least) * (1 + math.cos(math.pi * done)) / 2


def train_step(model, optimizer, batch, learning_rate, clip):
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    inputs, targets = batch
    loss = cross_entropy(model(inputs), targets)
    loss.backward()
    if clip > 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(loss.detach())


@torch.no_grad()
def score(model, windows, size):
    total = 0.0
    for begin in range(0, len(windows), size):
        indices = list(range(begin, min(begin + size, len(windows))))
        inputs, targets = windows.batch(indices)
        total += float(cross_entropy(model(inputs), targets)) * len(indices)
    return total / len(windows)


def parse_flags():
    parser = argparse.ArgumentParser()
    parser.add_argument("metrics_file")
    parser.add_argument("initial_weights", help="a Hugging Face folder")
    parser.add_argument(
        "--learning_rates",
        choices=["job", "nanogpt"],
        default="job",
        help="those that the job had in each step, or nanoGPT's formula",
    )
    parser.add_argument(
        "--dtype",
        choices=["float32", "float64"],
        default="float32",
        help="of PyTorch's model",
    )
    parser.add_argument("--rows", type=int, default=20, help="of the table")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main():
    flags = parse_flags()
    torch.set_num_threads(flags.threads)
    events = read_events(flags.metrics_file)
    settings, steps = events["settings"][0], events["step"]
    if [event["step"] for event in steps] != list(range(1, len(steps) + 1)):
        sys.exit("each step's loss is needed: run the job with --log_every=1")
    model = read_model(flags.initial_weights, getattr(torch, flags.dtype))
    optimizer = make_optimizer(model, settings)
    folder, context = settings["data_dir"], settings["context"]
    size = settings["batch_size"]
    data = batches(Windows(f"{folder}/train.bin", context), size, settings["seed"])

    print("| step | tandem | PyTorch | difference |\n|---|---|---|---|")
    differences, begin = [], time.monotonic()
    for number, event in enumerate(steps):
        learning_rate = event["learning_rate"]
        if flags.learning_rates == "nanogpt":
            learning_rate = nanogpt_learning_rate(number, settings)
        clip = settings["clip_grad_norm"]
        loss = train_step(model, optimizer, next(data), learning_rate, clip)
        differences.append(loss - event["loss"])
        every = max(1, len(steps) // flags.rows)
        if number == 0 or (number + 1) % every == 0 or number + 1 == len(steps):
            row = (event["step"], event["loss"], loss, differences[-1])
            print("| %d | %.6f | %.6f | %+.1e |" % row, flush=True)
    seconds = (time.monotonic() - begin) / len(steps)
    print("greatest difference of a step: %.1e" % max(map(abs, differences)))
    print("PyTorch: %.0f ms a step" % (1e3 * seconds))
    if "eval" in events:
        ours = events["eval"][-1]["loss"]
        theirs = score(model, Windows(f"{folder}/val.bin", context), size)
        print("validation: tandem %.6f, PyTorch %.6f" % (ours, theirs))


if __name__ == "__main__":
    main()
