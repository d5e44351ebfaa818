#!/usr/bin/env python3
"""Writes testdata/torchvision_parity.json: what PyTorch's own models compute.

Needs torch 2.15.0 and torchvision 0.29.2:

    python3 make_torchvision_parity.py testdata/torchvision_parity.json

Weights are not stored: both sides fill every parameter and buffer from its name
by the same formula (formula_values.py; in C++, tests/models/formula_values.h),
rounded to float32. All is computed in double: in float32 torchvision's own
ResNet-50 differs by 4e-5 in training mode between one thread and two.
"""

import json
import math
import sys

import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from formula_values import fill, formula

CLASSES = 10


class Conv1D(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(width, 3 * width)
        self.c_proj = Conv1D(width, width)

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = (
            y.view(n, t, self.heads, width // self.heads).transpose(1, 2)
            for y in self.c_attn(x).split(width, dim=2)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -math.inf).softmax(-1)
        return self.c_proj((weights @ v).transpose(1, 2).reshape(n, t, width))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Conv1D(width, 4 * width)
        self.c_proj = Conv1D(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    """GPT-2 with attention written out, under Hugging Face's names."""

    def __init__(self, layers=4, width=128, heads=4, context=128, vocabulary=256):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, width),
                "wpe": nn.Embedding(context, width),
                "h": nn.ModuleList(Block(width, heads) for _ in range(layers)),
                "ln_f": nn.LayerNorm(width),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        parts = self.transformer
        x = parts["wte"](tokens) + parts["wpe"](torch.arange(tokens.shape[1]))
        for block in parts["h"]:
            x = block(x)
        return self.lm_head(parts["ln_f"](x))


def rounded(tensor):
    return [float(f"{x:.12g}") for x in tensor.detach().flatten().tolist()]


def names_and_shapes(items):
    return [[name, list(tensor.shape)] for name, tensor in items]


def gradient_norm(model):
    squares = (p.grad.double().square().sum() for p in model.parameters())
    return math.sqrt(sum(squares))


def resnet_case(make):
    full = make()
    inputs = formula("input", (4, 3, 64, 64)).double()
    model = fill(make(num_classes=CLASSES)).double().eval()
    evaluated = model(inputs)
    model.train()
    trained = model(inputs)
    loss = F.cross_entropy(trained, torch.arange(4))
    loss.backward()
    model.eval()
    return {
        "parameters": names_and_shapes(full.named_parameters()),
        "buffers": names_and_shapes(full.named_buffers()),
        "eval": rounded(evaluated),
        "train": rounded(trained),
        "eval_after_train": rounded(model(inputs)),
        "loss": loss.item(),
        "gradient_norm": gradient_norm(model),
    }


def gpt_case():
    model = fill(Gpt2()).double()
    index = torch.arange(2 * 128).view(2, 128)
    tokens = (index * index * 3 + index * 7) % 256
    logits = model(tokens)
    targets = (tokens * 5 + 1) % 256
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    return {
        "parameters": names_and_shapes(model.named_parameters()),
        "logits": rounded(logits[:, [0, 1, 2, 63, 127], :16]),
        "loss": loss.item(),
        "gradient_norm": gradient_norm(model),
    }


def main():
    torch.manual_seed(0)
    cases = {
        "made_with": f"torch {torch.__version__}, torchvision {torchvision.__version__}",
        "resnet18": resnet_case(torchvision.models.resnet18),
        "resnet34": resnet_case(torchvision.models.resnet34),
        "resnet50": resnet_case(torchvision.models.resnet50),
        "gpt_tiny": gpt_case(),
    }
    with open(sys.argv[1], "w") as file:
        json.dump(cases, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
