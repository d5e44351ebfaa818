#!/usr/bin/env python3
"""Writes testdata/recipe_parity.json: the losses of nanoGPT's recipe in PyTorch, in double.

Needs torch 2.15.0, and tests/models and tools/bench/peers in PYTHONPATH:

    python3 make_recipe_parity.py testdata/recipe_parity.json

The model and the recipe are those of tools/bench/peers/text_losses.py: AdamW in two groups, the gradients' norm clipped,
warm-up and cosine. Weights are by formula (formula_values.py), as are tokens, so that neither is stored.
"""

import json
import math
import sys

import torch

from formula_values import fill
from models import Gpt2
from text_losses import make_optimizer, train_step

LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY = 2, 24, 3, 16, 13
SAMPLES, STEPS = 4, 100
SETTINGS = {
    "learning_rate": 1e-2,
    "min_learning_rate": 1e-3,
    "lr_warmup_steps": 10,
    "adam_beta1": 0.9,
    "adam_beta2": 0.99,
    "adam_eps": 1e-8,
    "weight_decay": 0.1,
}
CLIP = 1.0


def batch(step):
    i = torch.arange(CONTEXT + 1)
    sample = torch.arange(SAMPLES).unsqueeze(1)
    tokens = (i * i + (sample + 3) * i + 5 * sample + step * (step + 1) // 2) % VOCABULARY
    return tokens[:, :-1], tokens[:, 1:]


def learning_rate(step):
    peak, least, warm_up = (SETTINGS[name] for name in ("learning_rate", "min_learning_rate", "lr_warmup_steps"))
    if step < warm_up:
        return peak * (step + 1) / warm_up
    done = (step - warm_up) / (STEPS - warm_up)
    return least + (peak - least) * (1 + math.cos(math.pi * done)) / 2


def losses(tied):
    model = Gpt2(LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY)
    fill(model)
    if tied:
        model.lm_head.weight = model.transformer["wte"].weight
    model.double()
    optimizer = make_optimizer(model, SETTINGS)
    return [train_step(model, optimizer, batch(step), learning_rate(step), CLIP) for step in range(STEPS)]


def main():
    torch.set_num_threads(1)
    parity = {"torch": torch.__version__, "gpt": losses(tied=False), "gpt_tied": losses(tied=True)}
    with open(sys.argv[1], "w") as file:
        json.dump(parity, file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main()
