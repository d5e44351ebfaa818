#!/usr/bin/env python3
"""Compares what //tools:export wrote of a job with --lora_rank with transformers and PEFT.

Needs torch 2.15.0, transformers 5.24.0 and peft 0.21.2:

    train --init_from=BASE ... --lora_rank=R --save_dir=SAVED
    export --checkpoint=SAVED --output=MERGED
    export --checkpoint=SAVED --output=ADAPTER --lora=adapter
    python3 check_adapter.py BASE MERGED ADAPTER [TOKENS.bin CONTEXT LOSS]

The base model with the adapter, by PEFT, is to have the merged model's logits, and other ones than the base alone; every
key of the adapter is to have a place, and every adapter its values. With token numbers of two bytes each, and the loss
that the job's evaluation had on them in samples of CONTEXT tokens, the three losses are to agree to six digits.
"""

import math
import sys

import torch
from peft import PeftModel
from peft.utils.save_and_load import get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def loss_of(model, path, context):
    """The mean over the file's whole samples, each predicting the token behind."""
    with open(path, "rb") as file:
        tokens = torch.frombuffer(bytearray(file.read()), dtype=torch.uint16).long()
    count = (len(tokens) - 1) // context
    inputs = tokens[: count * context].view(count, context)
    targets = tokens[1 : count * context + 1].view(count, context)
    with torch.no_grad():
        logits = model(inputs).logits.double()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()


def main(base_folder, merged_folder, adapter_folder, tokens=None, context=None, loss=None):
    base = AutoModelForCausalLM.from_pretrained(base_folder).eval()
    merged, report = AutoModelForCausalLM.from_pretrained(merged_folder, output_loading_info=True)
    assert not any(report.values()), report
    merged.eval()
    inputs = torch.arange(8).view(1, 8) % base.config.vocab_size
    with torch.no_grad():
        plain = base(inputs).logits
    adapted = PeftModel.from_pretrained(base, adapter_folder).eval()
    stored = load_file(f"{adapter_folder}/adapter_model.safetensors")
    own = get_peft_model_state_dict(adapted)
    assert set(own) == set(stored), set(own) ^ set(stored)
    assert all(torch.equal(own[key], stored[key]) for key in own)
    with torch.no_grad():
        ours, theirs = merged(inputs).logits, adapted(inputs).logits
    apart = (ours - theirs).abs().max().item()
    moved = (plain - theirs).abs().max().item()
    print(f"logits: merged and adapted {apart:.2e} apart, adapted and base {moved:.2e}")
    assert apart <= 1e-4 * plain.abs().max().item() and moved > 10 * apart
    if tokens is None:
        return
    losses = {"merged": loss_of(merged, tokens, int(context)), "PEFT": loss_of(adapted, tokens, int(context))}
    losses["merge_and_unload"] = loss_of(adapted.merge_and_unload(), tokens, int(context))
    for name, value in losses.items():
        print(f"{name}: {value:.8f}, the job's {float(loss):.8f}")
        assert math.isclose(value, float(loss), rel_tol=1e-6)


main(*sys.argv[1:])
