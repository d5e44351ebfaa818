#!/usr/bin/env python3
"""Writes testdata/transformers_parity.json: what others' transformers compute:
Hugging Face's GPT-2 and Llama, torchvision's VisionTransformer.

Needs torch 2.15.0, torchvision 0.29.2 and transformers 5.24.0, and tests/models in PYTHONPATH:

    python3 make_transformers_parity.py testdata/transformers_parity.json

Weights are not stored: both sides fill every parameter from its name by the
same formula (formula_values.py). Of each gradient there is the norm, the inner
product with values of the same formula, and the first elements.

Everything is computed in float32 and in double. transformers' Llama goes to
float32 in places (RMSNorm, the angles of rotary positions) whatever the model's
dtype; for double, torch.float and Tensor.float mean double while it runs.
"""

import json
import sys
from unittest import mock

import torch
import torchvision
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from formula_values import fill, formula

OUR_NAMES = {"class_token": "encoder.class_token"}

BATCH, TOKENS, VOCABULARY = 2, 9, 13


def gpt2(tied):
    return GPT2LMHeadModel(
        GPT2Config(
            n_layer=2,
            n_embd=24,
            n_head=3,
            n_positions=16,
            vocab_size=VOCABULARY,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            tie_word_embeddings=tied,
        )
    )


def llama(**sizes):
    config = {
        "num_hidden_layers": 2,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_attention_heads": 6,
        "num_key_value_heads": 6,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 16,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
    }
    config.update(sizes)
    return LlamaForCausalLM(LlamaConfig(**config))


# With all three kinds of wave: kept, divided, between.
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 40,
}

CASES = {
    "gpt2": lambda: gpt2(tied=False),
    "gpt2_tied": lambda: gpt2(tied=True),
    "llama": lambda: llama(),
    "llama_tied": lambda: llama(tie_word_embeddings=True),
    "llama_grouped": lambda: llama(num_key_value_heads=2),
    "llama_grouped_tied_scaled": lambda: llama(
        num_key_value_heads=3,
        hidden_size=48,
        tie_word_embeddings=True,
        rope_parameters=LLAMA3,
    ),
    "llama_head_dim_biases": lambda: llama(
        num_key_value_heads=1, head_dim=10, attention_bias=True, mlp_bias=True
    ),
}


# Where documents begin in two samples; the last tokens of documents have no targets.
BEGINS = [[0, 0, 0, 0, 4, 5, 5, 5, 5], [0, 0, 0, 0, 0, 0, 0, 7, 7]]
PACKED = {"gpt2_packed": CASES["gpt2"], "llama_grouped_packed": CASES["llama_grouped"]}


def rounded(values, digits):
    return [float(f"{x:.{digits}g}") for x in values]


def summary(name, gradient, digits):
    probe = formula(name + ".probe", tuple(gradient.shape)).to(gradient.dtype)
    numbers = [gradient.norm().item(), (gradient * probe).sum().item()]
    return rounded(numbers + gradient.flatten()[:4].tolist(), digits)


def vit():
    return torchvision.models.VisionTransformer(
        image_size=32,
        patch_size=8,
        num_layers=2,
        num_heads=3,
        hidden_dim=24,
        mlp_dim=40,
        num_classes=5,
    )


def vit_computed(dtype, digits):
    model = fill(vit())
    with torch.no_grad():
        # Under our name.
        token = model.class_token
        token.copy_(formula("encoder.class_token", tuple(token.shape)))
    model = model.to(dtype).eval()
    logits = model(formula("input", (3, 3, 32, 32)).to(dtype))
    return result(model, logits, torch.arange(3), digits)


def computed(make, dtype, digits):
    model = fill(make()).to(dtype).eval()
    index = torch.arange(BATCH * TOKENS).view(BATCH, TOKENS)
    tokens = (index * index * 3 + index * 7) % VOCABULARY
    targets = (tokens * 5 + 1) % VOCABULARY
    logits = model(input_ids=tokens).logits
    assert logits.dtype == dtype
    return result(model, logits.flatten(0, 1), targets.flatten(), digits)


def packed(make, dtype, digits):
    """Documents side by side, by positions and a mask."""
    model = fill(make()).to(dtype).eval()
    index = torch.arange(BATCH * TOKENS).view(BATCH, TOKENS)
    tokens = (index * index * 3 + index * 7) % VOCABULARY
    targets = (tokens * 5 + 1) % VOCABULARY
    begins = torch.tensor(BEGINS)
    places = torch.arange(TOKENS)
    targets[:, :-1][begins.diff(dim=1) != 0] = -100
    seen = (places >= begins[:, :, None]) & (places <= places[:, None])
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)
    logits = model(input_ids=tokens, position_ids=places - begins, attention_mask=mask[:, None]).logits
    assert logits.dtype == dtype
    return result(model, logits.flatten(0, 1), targets.flatten(), digits)


def result(model, logits, targets, digits):
    loss = torch.nn.functional.cross_entropy(logits, targets)
    loss.backward()
    return {
        "logits": rounded(logits.flatten().tolist(), digits),
        "loss": loss.item(),
        "gradients": {
            name: summary(name, parameter.grad, digits)
            for name, parameter in (
                (OUR_NAMES.get(name, name), parameter)
                for name, parameter in model.named_parameters()
            )
        },
    }


def in_double(make, computed=computed):
    double = torch.float64
    with mock.patch.object(torch, "float", double), mock.patch.object(
        torch, "float32", double
    ), mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        return computed(make, double, digits=14)


def main():
    transformers.set_seed(0)
    cases = {
        "made_with": f"torch {torch.__version__}, torchvision {torchvision.__version__}, transformers {transformers.__version__}"
    }
    for name, make in CASES.items():
        cases[name] = {
            "float": computed(make, torch.float32, digits=8),
            "double": in_double(make),
            "parameters": sum(p.numel() for p in make().parameters()),
        }
    for name, make in PACKED.items():
        cases[name] = {
            "float": packed(make, torch.float32, digits=8),
            "double": in_double(make, packed),
            "parameters": sum(p.numel() for p in make().parameters()),
        }
    cases["vit"] = {
        "float": vit_computed(torch.float32, digits=8),
        "double": vit_computed(torch.float64, digits=14),
        "parameters": sum(p.numel() for p in vit().parameters()),
    }
    with open(sys.argv[1], "w") as file:
        json.dump(cases, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
