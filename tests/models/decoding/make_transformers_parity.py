#!/usr/bin/env python3
"""Writes testdata/transformers_parity.json: what Hugging Face's transformers
gives for decoding: tokens of generate() under greedy decoding, and the
probabilities that its logits warpers leave.

  pip install torch transformers && python3 tests/models/decoding/make_transformers_parity.py
"""

import json
import pathlib
import sys

import torch
import transformers
from transformers.generation.logits_process import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from formula_values import fill, uniform  # noqa: E402

# A gap between the best logit and the next that no rounding closes.
LEAST_GAP = 1e-3

SIZES = {"layers": 3, "width": 24, "heads": 3, "context": 40, "vocabulary": 61}
LLAMA_SIZES = dict(SIZES, width=32, heads=4, kv_heads=2, ffn_width=40)
PROMPTS = [[7], [3, 58, 12, 12, 0, 31, 44], list(range(2, 32))]


def tiny_gpt2():
    config = transformers.GPT2Config(
        n_layer=SIZES["layers"],
        n_embd=SIZES["width"],
        n_head=SIZES["heads"],
        n_positions=SIZES["context"],
        vocab_size=SIZES["vocabulary"],
        bos_token_id=0,
        eos_token_id=None,
        tie_word_embeddings=False,
    )
    return fill(transformers.GPT2LMHeadModel(config)).eval()


def tiny_llama():
    config = transformers.LlamaConfig(
        num_hidden_layers=LLAMA_SIZES["layers"],
        hidden_size=LLAMA_SIZES["width"],
        intermediate_size=LLAMA_SIZES["ffn_width"],
        num_attention_heads=LLAMA_SIZES["heads"],
        num_key_value_heads=LLAMA_SIZES["kv_heads"],
        max_position_embeddings=LLAMA_SIZES["context"],
        vocab_size=LLAMA_SIZES["vocabulary"],
        rms_norm_eps=1e-5,
        bos_token_id=0,
        eos_token_id=None,
        tie_word_embeddings=False,
    )
    return fill(transformers.LlamaForCausalLM(config)).eval()


def greedy(model, prompt):
    output = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        max_new_tokens=SIZES["context"] - len(prompt),
        use_cache=True,
        output_logits=True,
        return_dict_in_generate=True,
        pad_token_id=0,
    )
    for logits in output.logits:
        best = logits[0].topk(2).values
        assert best[0] - best[1] > LEAST_GAP, "a tie: take another prompt"
    return {"prompt": prompt, "tokens": output.sequences[0, len(prompt) :].tolist()}


def warped(logits, temperature, top_k, top_p):
    warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k > 0:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        warpers.append(TopPLogitsWarper(top_p))
    scores = warpers(torch.tensor([[0]]), torch.tensor([logits], dtype=torch.double))
    return {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "probabilities": scores.softmax(-1)[0].tolist(),
    }


def main():
    logits = [float(value) for value in 4 * uniform("logits", 13)]
    logits[5] = logits[9]  # a tie, within and at the border of top-k
    settings = [
        (1.0, 0, 1.0), (0.25, 0, 1.0), (3.0, 0, 1.0),
        (1.0, 1, 1.0), (1.0, 4, 1.0), (0.7, 5, 1.0), (1.0, 99, 1.0),
        (1.0, 0, 0.9), (1.0, 0, 0.5), (1.0, 0, 1e-6), (2.5, 0, 0.75),
        (0.8, 6, 0.6), (1.7, 7, 0.95),
    ]
    gpt2, llama = tiny_gpt2(), tiny_llama()
    parity = {
        "gpt2": {
            "sizes": SIZES,
            "greedy": [greedy(gpt2, prompt) for prompt in PROMPTS],
        },
        "llama": {
            "sizes": LLAMA_SIZES,
            "greedy": [greedy(llama, prompt) for prompt in PROMPTS],
        },
        "logits": logits,
        "warped": [warped(logits, *each) for each in settings],
    }
    path = HERE / "testdata" / "transformers_parity.json"
    path.write_text(json.dumps(parity) + "\n")
    print(path.stat().st_size, "bytes;", [len(set(g["tokens"])) for m in ("gpt2", "llama") for g in parity[m]["greedy"]])


if __name__ == "__main__":
    main()
