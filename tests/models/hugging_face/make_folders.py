#!/usr/bin/env python3
"""Writes testdata/: models as transformers saves them, and what they compute.

Needs torch 2.15.0 and transformers 5.24.0:

    python3 make_folders.py testdata

Each folder is what save_pretrained leaves (config.json, and model.safetensors or
shards with an index), with expected.json beside it: token numbers [2, 8] and the
logits that the model has for them in float32.
"""

import json
import pathlib
import sys

import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

VOCABULARY = 32


def gpt2(**more):
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_positions=16, n_embd=16, n_layer=2, n_head=2,
                   bos_token_id=None, eos_token_id=None, **more))


def llama(**more):
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                    num_attention_heads=4, max_position_embeddings=16, bos_token_id=None, eos_token_id=None, **more))


ROPE = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8, "rope_theta": 5000.0}
FOLDERS = {
    "gpt2_tied": (gpt2, {}, {}),
    "gpt2_untied_sharded": (gpt2, {"tie_word_embeddings": False}, {"max_shard_size": "12KB"}),
    "llama_tied_grouped": (llama, {"num_key_value_heads": 2, "tie_word_embeddings": True,
                                   "rope_parameters": ROPE}, {}),
    "llama_untied_sharded": (llama, {"num_key_value_heads": 4}, {"max_shard_size": "8KB"}),
    "llama_bf16": (llama, {"num_key_value_heads": 1}, {}),
}


def main(out):
    for i, (name, (make, config, saving)) in enumerate(FOLDERS.items()):
        torch.manual_seed(i)
        model = make(**config).eval()
        with torch.no_grad():
            for parameter in model.parameters():  # biases and norms, too
                parameter.add_(0.1 * torch.randn_like(parameter))
        if name.endswith("bf16"):
            model = model.to(torch.bfloat16)
        folder = out / name
        model.save_pretrained(folder, **saving)
        (folder / "generation_config.json").unlink(missing_ok=True)
        tokens = torch.randint(VOCABULARY, (2, 8))
        with torch.no_grad():
            logits = model.float()(tokens).logits
        expected = {"tokens": tokens.tolist(), "logits": [round(x, 6) for x in logits.flatten().tolist()]}
        (folder / "expected.json").write_text(json.dumps(expected) + "\n")


main(pathlib.Path(sys.argv[1]))
