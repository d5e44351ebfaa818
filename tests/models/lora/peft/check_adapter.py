"""Has PEFT read what //tools:export wrote of jobs with --lora_rank: check_adapter.py PACKAGES JOB...

PACKAGES is the folder of PEFT and of what it needs. A JOB's folder has `base`, the model that it began with, `merged` and
`adapter`, its two exports, and `metrics.jsonl`; `tokens/val.bin` is beside it, and has what the job was evaluated on.

The base model with the adapter, by PEFT, is to have the merged model's logits, and other ones than the base alone; every
key of the adapter is to have a place, and every adapter its values. The losses of the merged model, of PEFT's, and of the
model that PEFT merges are to agree with the job's to six digits.
"""

import json
import math
import os
import sys

sys.path.insert(0, sys.argv[1])

import torch  # noqa: E402
from peft import PeftModel  # noqa: E402
from peft.utils.save_and_load import get_peft_model_state_dict  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

# The job's --context.
CONTEXT = 8


def loss_of(model, tokens):
    """The mean over the whole samples of `tokens`, each predicting the token behind."""
    count = (len(tokens) - 1) // CONTEXT
    inputs = tokens[: count * CONTEXT].view(count, CONTEXT)
    targets = tokens[1 : count * CONTEXT + 1].view(count, CONTEXT)
    with torch.no_grad():
        logits = model(inputs).logits.double()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()


def loss_of_job(folder):
    with open(f"{folder}/metrics.jsonl", encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    return [event["loss"] for event in events if event["event"] == "eval"][-1]


def read_tokens(path):
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint16).long()


def check(folder):
    base = AutoModelForCausalLM.from_pretrained(f"{folder}/base").eval()
    merged, report = AutoModelForCausalLM.from_pretrained(f"{folder}/merged", output_loading_info=True)
    assert not any(report.values()), report
    merged.eval()
    tokens = read_tokens(os.path.join(os.path.dirname(folder), "tokens", "val.bin"))
    inputs = tokens[:CONTEXT].view(1, CONTEXT)
    with torch.no_grad():
        plain = base(inputs).logits
    adapted = PeftModel.from_pretrained(base, f"{folder}/adapter").eval()
    stored = load_file(f"{folder}/adapter/adapter_model.safetensors")
    own = get_peft_model_state_dict(adapted)
    assert set(own) == set(stored), set(own) ^ set(stored)
    assert all(torch.equal(own[key], stored[key]) for key in own)
    with torch.no_grad():
        ours, theirs = merged(inputs).logits, adapted(inputs).logits
    apart = (ours - theirs).abs().max().item()
    moved = (plain - theirs).abs().max().item()
    print(f"{folder}: {len(stored)} tensors")
    print(f"logits: merged and adapted {apart:.2e} apart, adapted and base {moved:.2e}")
    assert apart <= 1e-4 * plain.abs().max().item() and moved > 1e-2 * plain.abs().max().item()
    losses = {"merged": loss_of(merged, tokens), "PEFT": loss_of(adapted, tokens)}
    losses["merge_and_unload"] = loss_of(adapted.merge_and_unload(), tokens)
    job = loss_of_job(folder)
    for name, value in losses.items():
        print(f"{name}: {value:.8f}, the job's {job:.8f}")
        assert math.isclose(value, job, rel_tol=1e-6)


for each in sys.argv[2:]:
    check(each)
