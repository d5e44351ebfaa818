#!/usr/bin/env python3
"""Trains two small sentencepiece models, and writes what Python's sentencepiece makes of awkward texts with them.

  python3.11 -m venv V && V/bin/pip install sentencepiece==0.2.3 tokenizers==0.23.3 tiktoken==0.14.0
  V/bin/python make_parity.py          testdata/parity.json, from the models that are there
  V/bin/python make_parity.py --train  first new models

testdata/unigram.model is as sentencepiece trains by default (unigram, nmt_nfkc), testdata/bpe.model as Llama 2's is (BPE
with byte_fallback, digits apart, every space kept, no normalization). Texts are those of ../make_parity.py.
"""

import base64
import importlib.util
import json
import os
import sys

import sentencepiece

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "testdata")
spec = importlib.util.spec_from_file_location("texts", os.path.join(HERE, "..", "make_parity.py"))
texts = importlib.util.module_from_spec(spec)
spec.loader.exec_module(texts)

MODELS = {
    "unigram": {"model_type": "unigram", "vocab_size": 500, "user_defined_symbols": ["<extra>"]},
    "bpe": {
        "model_type": "bpe",
        "vocab_size": 700,
        "byte_fallback": True,
        "split_digits": True,
        "allow_whitespace_only_pieces": True,
        "remove_extra_whitespaces": False,
        "normalization_rule_name": "identity",
        "character_coverage": 0.98,
    },
}
LONG = [[piece, min(times, 20000)] for piece, times in texts.LONG]


def lines():
    for text in texts.corpus():
        yield from text.split("\n")


def train():
    os.makedirs(DATA, exist_ok=True)
    os.chdir(DATA)  # a model keeps its prefix
    for name, settings in MODELS.items():
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines(),
            model_prefix=name,
            num_threads=1,
            minloglevel=2,
            max_sentence_length=100000,
            **settings,
        )
        os.remove(name + ".vocab")


def main():
    if "--train" in sys.argv:
        train()
    models = {
        name: sentencepiece.SentencePieceProcessor(model_file=os.path.join(DATA, name + ".model")) for name in MODELS
    }
    cases = []
    for given in [*texts.TEXTS, *texts.BYTES, *texts.random_texts(), "<s>a</s> <unk> <0x41>", "\u2581a \u2581"]:
        raw = given if isinstance(given, bytes) else given.encode("utf-8")
        case = {"bytes": base64.b64encode(raw).decode()}
        for name, model in models.items():
            ids = model.encode(raw)
            case[name] = ids
            case[name + "_text"] = base64.b64encode(model.decode(ids).encode("utf-8")).decode()
        cases.append(case)
    long = []
    for piece, times in LONG:
        case = {"piece": piece, "times": times}
        case |= {name: texts.digest(model.encode(piece * times)) for name, model in models.items()}
        long.append(case)
    with open(os.path.join(DATA, "parity.json"), "w", encoding="ascii") as file:
        file.write('{"version": %s,\n"cases": [\n' % json.dumps(sentencepiece.__version__))
        file.write(",\n".join(json.dumps(case) for case in cases))
        file.write('\n],\n"long": [\n')
        file.write(",\n".join(json.dumps(case) for case in long))
        file.write("\n]}\n")


if __name__ == "__main__":
    main()
