#!/usr/bin/env python3
"""Writes what Python's tiktoken and sentencepiece make of awkward texts with vocabularies as they were released.

  python3.11 -m venv V && V/bin/pip install tiktoken==0.14.0 sentencepiece==0.2.3 tokenizers==0.23.3
  bazel build //third_party/king_james_bible:text @gpt2_tokenizer//:ranks @mistral_tokenizer//:all
  V/bin/python make_parity.py GPT2_RANKS MISTRAL_MODEL MISTRAL_MODEL_V3 KING_JAMES_BIBLE

The files are those that Bazel has brought. Texts are those of ../make_parity.py; of long ones, and of the book, a line
at a time, stands the SHA-256 of the tokens.
"""

import base64
import importlib.util
import json
import os
import sys

import sentencepiece
import tiktoken

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("texts", os.path.join(HERE, "..", "make_parity.py"))
texts = importlib.util.module_from_spec(spec)
spec.loader.exec_module(texts)

OTHERS = ["<s>a</s> <unk> <0x41>", "[INST] Hi [/INST][TOOL_CALLS]", "\u2581a \u2581", "<|endoftext|>" * 3]
LONG = [[piece, min(times, 20000)] for piece, times in texts.LONG]


def open_gpt2(path):
    with open(path, encoding="ascii") as file:
        ranks = {base64.b64decode(w): int(r) for w, r in (line.split() for line in file)}
    special = {"<|endoftext|>": len(ranks)}
    return tiktoken.Encoding("gpt2", pat_str=texts.GPT2, mergeable_ranks=ranks, special_tokens=special)


def main():
    gpt2_path, mistral_path, mistral_v3_path, book_path = sys.argv[1:]
    gpt2 = open_gpt2(gpt2_path)

    def of_model(path):
        return sentencepiece.SentencePieceProcessor(model_file=path).encode

    encoders = {
        "gpt2": lambda raw: gpt2.encode(raw.decode("utf-8", errors="replace"), allowed_special="all"),
        "gpt2_ordinary": lambda raw: gpt2.encode_ordinary(raw.decode("utf-8", errors="replace")),
        "mistral": of_model(mistral_path),
        "mistral_v3": of_model(mistral_v3_path),
    }
    cases = []
    for given in [*texts.TEXTS, *texts.BYTES, *OTHERS, *texts.random_texts()]:
        raw = given if isinstance(given, bytes) else given.encode("utf-8")
        case = {"bytes": base64.b64encode(raw).decode()}
        cases.append(case | {name: encode(raw) for name, encode in encoders.items()})
    long = []
    for piece, times in LONG:
        case = {"piece": piece, "times": times}
        raw = (piece * times).encode("utf-8")
        long.append(case | {name: texts.digest(encode(raw)) for name, encode in encoders.items()})
    with open(book_path, "rb") as file:
        lines = file.read().splitlines()
    book = {name: texts.digest([t for line in lines for t in encode(line)]) for name, encode in encoders.items()}
    versions = {"tiktoken": tiktoken.__version__, "sentencepiece": sentencepiece.__version__}
    with open(os.path.join(HERE, "testdata", "parity.json"), "w", encoding="ascii") as file:
        file.write('{"versions": %s,\n"cases": [\n' % json.dumps(versions))
        file.write(",\n".join(json.dumps(case) for case in cases))
        file.write('\n],\n"long": [\n')
        file.write(",\n".join(json.dumps(case) for case in long))
        file.write('\n],\n"book": %s}\n' % json.dumps(book))


if __name__ == "__main__":
    main()
