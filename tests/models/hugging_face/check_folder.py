#!/usr/bin/env python3
"""Has transformers load folders that //tools:export wrote: nothing missing, nothing left over.

Needs torch 2.15.0 and transformers 5.24.0:

    python3 check_folder.py DIR...

Prints a line for each folder; fails where a key is missing, unexpected or of another shape.
"""

import sys

import torch
from transformers import AutoModelForCausalLM


def check(folder):
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    wrong = {kind: keys for kind, keys in report.items() if keys}
    with torch.no_grad():
        logits = model.eval()(torch.zeros(1, 2, dtype=torch.long)).logits
    if not torch.isfinite(logits).all():
        wrong["logits"] = "not finite"
    print(f"{folder}: {type(model).__name__}, {model.dtype}, {wrong or 'all keys'}")
    return not wrong


sys.exit(0 if all([check(folder) for folder in sys.argv[1:]]) else 1)
