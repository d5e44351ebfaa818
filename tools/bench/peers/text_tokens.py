#!/usr/bin/env python3
"""Python's tokenizers, tiktoken and sentencepiece in the suite tokenizer, which starts it.

Reads a line from the FIFO that --commands names, a JSON list of a command and its arguments, and answers with a line of
JSON. Texts are those of --documents, a JSON string a line. What is timed gives lists of token numbers, all texts in a
call where the library is the faster for it, on one thread, by a tokenizer that has seen none of them yet.
"""

import base64
import hashlib
import json
import os
import struct
import time

from commands import answer, parse_flags

flags = parse_flags("documents")
os.environ["TOKENIZERS_PARALLELISM"] = "false"

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""
)


class Peer:
    def __init__(self):
        with open(flags.documents, encoding="utf-8") as file:
            self.documents = [json.loads(line) for line in file]
        self.opened = None
        self.encode = None

    def make(self, folder, vocabulary):
        """Tokenizers of these texts: gpt2.json, llama3.json, llama3.tiktoken, unigram.model, bpe.model."""
        self.make_byte_pairs(os.path.join(folder, "gpt2"), GPT2, vocabulary)
        self.make_byte_pairs(os.path.join(folder, "llama3"), LLAMA3, vocabulary)
        import sentencepiece

        lines = [line for text in self.documents for line in text.split("\n")]
        for kind, more in {
            "unigram": {},
            "bpe": {"byte_fallback": True, "split_digits": True, "normalization_rule_name": "identity"},
        }.items():
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_prefix=os.path.join(folder, kind),
                model_type=kind,
                vocab_size=vocabulary,
                hard_vocab_limit=False,
                num_threads=1,
                minloglevel=2,
                **more,
            )
        return {}

    def make_byte_pairs(self, path, pattern, vocabulary):
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        tokenizer.train_from_iterator(
            self.documents,
            trainers.BpeTrainer(vocab_size=vocabulary, initial_alphabet=alphabet, show_progress=False),
        )
        tokenizer.save(path + ".json", pretty=False)
        visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [b for b in range(256) if b not in visible]
        byte_of = {chr(b): b for b in visible} | {chr(256 + i): b for i, b in enumerate(others)}
        with open(path + ".tiktoken", "w", encoding="ascii") as file:
            for word, rank in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
                raw = bytes(byte_of[c] for c in word)
                file.write("%s %d\n" % (base64.b64encode(raw).decode(), rank))

    def open(self, library, path):
        self.opened = library, path
        if library == "tokenizers":
            import tokenizers

            tokenizer = tokenizers.Tokenizer.from_file(path)
            tokenizer.encode_special_tokens = True
            # Without offsets, which nobody asked for; of before 0.20.1 with them.
            encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
            self.encode = lambda texts: [each.ids for each in encode(texts, add_special_tokens=False)]
            version = tokenizers.__version__
        elif library == "tiktoken":
            import tiktoken

            with open(path, encoding="ascii") as file:
                ranks = {base64.b64decode(w): int(r) for w, r in (line.split() for line in file)}
            encoding = tiktoken.Encoding("made", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens={})
            self.encode = lambda texts: [encoding.encode_ordinary(text) for text in texts]
            version = tiktoken.__version__
        else:
            import sentencepiece

            model = sentencepiece.SentencePieceProcessor(model_file=path)
            self.encode = lambda texts: model.encode(texts, num_threads=1)
            version = sentencepiece.__version__
        return {"version": f"{library} {version}"}

    def tokens(self):
        digest, count = hashlib.sha256(), 0
        for ids in self.encode(self.documents):
            count += len(ids)
            digest.update(struct.pack("<%dI" % len(ids), *ids))
        return {"count": count, "sha256": digest.hexdigest()}

    def time(self, repeats):
        taken = 0
        for _ in range(repeats):
            self.open(*self.opened)
            start = time.perf_counter()
            self.encode(self.documents)
            taken += time.perf_counter() - start
        return {"ms": 1e3 * taken / repeats}


if __name__ == "__main__":
    answer(Peer(), flags.commands)
