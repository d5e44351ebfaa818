#!/usr/bin/env python3
"""Makes the small tokenizers of testdata/, and what Python's make of awkward texts: parity.json.

  python3.11 -m venv V && V/bin/pip install tokenizers==0.23.3 tiktoken==0.14.0
  V/bin/python make_parity.py          parity.json, from the tokenizers that are there
  V/bin/python make_parity.py --train  first new tokenizers, from docs/*.md and the texts below

testdata/gpt2 is a GPT-2 in small (vocab.json, merges.txt), testdata/llama3 a Llama 3 (tokenizer.json, and
tokenizer.tiktoken with the same words as ranks). Python 3.11's Unicode is 14.0, PCRE2 10.42's too: random texts are of
its characters, for what later versions added is cut otherwise there.
"""

import base64
import glob
import hashlib
import json
import os
import random
import struct
import sys
import unicodedata

import tiktoken
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "testdata")
GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""
)

# Article 1 of the Universal Declaration of Human Rights.
SENTENCES = [
    "All human beings are born free and equal in dignity and rights.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "人人生而自由,在尊严和权利上一律平等。",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
]

WHITE = "\t\n\v\f\r \x85\xa0\u1680\u180e\u2000\u2003\u200a\u200b\u2028\u2029\u202f\u205f\u3000\ufeff\x1c\x1d\x1e\x1f"

TEXTS = [
    "",
    " ",
    "\n",
    "Hello, world!",
    "  two  spaces   three    four \t tab\t\ttabs \n\n\n lines \r\n\r\n ends   ",
    "a\x85b\xa0c\u1680d\u180ee\u2003f\u200bg\u2028h\u2029i\u202fj\u205fk\u3000l\ufeffm",
    WHITE,
    "x" + "y".join(WHITE) + "z",
    " ".join(WHITE),
    "\x00\x01\x02\x07\x08\x1b[31m\x7f\x80\x9f",
    "don't DON'T I'll I'LL we've WE'VE he'd HE'D it's IT'S they're THEY'RE I'm I'M 'tis '' ' 's'S'ſ x'ſ",
    "1 12 123 1234 12345 123456789012 3.14159 1,000,000 0x1F ½ ² Ⅷ ٣٤٥ १२३ 一二三 1a2b3c",
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪🇫🇷 ❤️ 😀😀😀 ☕️text👨‍💻",
    "e\u0301 \u0301 a\u0300\u0301\u0302 n\u0303o Å A\u030a ﬁ ﬂ ǆ Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘",
    "中文字符,日本語テキスト。한국어 텍스트 ㄱㄴ 𠀀𠀁 々〆",
    "שלום עולם مرحبا بالعالم \u202eright\u202c \u200fmark\u200e ا\u064b\u064c",
    "नमस्ते दुनिया ไทยภาษา ភាសាខ្មែរ தமிழ் తెలుగు",
    "İstanbul ıI ẞß ΣΑΣ ς Ǆ ŉ",
    "if (a&&b) { return c[0]->d; } // comment\n\t\tx += 1;\r\n#include <x>\n\n\n\n",
    "https://example.org/a_b-c?d=e&f=%20g#h  user@example.org  ---- ==== ____ ....... !?!?",
    "<|endoftext|>",
    "a<|endoftext|>b <|endoftext|> <|endoftext|><|endoftext|>\n<|endoftext",
    "<|begin_of_text|>Hi<|end_of_text|><|eot_id|><|eot_id|> <|begin_of_text |> <||> <|<|eot_id|>",
    "snowball Snowball snowballs a snow ball <extra>",
    "\ufffd \uffff \U0010ffff \U000e0001 \u0378 \ue000",
    "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww " * 3,
    "\n" * 50 + " " * 50 + "x" + " " * 50 + "\n" + "\t" * 50,
    *SENTENCES,
]

# What is no UTF-8, which Python replaces.
BYTES = [
    b"\xff",
    b"a\x80b\xc3",
    b"\xc0\xaf \xe0\x80\xaf \xf0\x80\x80\xaf",
    b"\xed\xa0\x80\xed\xbf\xbf",
    b"\xf4\x90\x80\x80 \xf5 \xfe\xff",
    b"\xe4\xb8 \xe4\xb8\xad \xe4 \xf0\x9f\x98 \xf0\x9f \xf0x \xf0\x9f\x98\x80",
    bytes(range(256)),
    b"caf\xe9 cr\xe8me br\xfbl\xe9e",
]

# Too long to stand in a file: a piece and how often.
LONG = [["a", 1000000], [" ", 1000000], ["ab", 300000], ["7", 100000], ["\u4e2d", 100000], ["word ", 50000], ["\r\n", 50000]]


def random_texts():
    rng = random.Random(1)
    known = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    some = [c for c in known if ord(c) < 0x800]
    ascii_ = [chr(c) for c in range(128)]
    for i in range(150):
        alphabet = [known, some, ascii_, list(WHITE + "aA1.'"), list(" 'sStTrReEvVmMlLdD\n")][i % 5]
        yield "".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 60)))
    for _ in range(30):
        yield bytes(rng.choice([0x20, 0x61, 0x80, 0xBF, 0xC3, 0xE2, 0xED, 0xF0, 0x9F]) for _ in range(30))


def corpus():
    for path in sorted(glob.glob(os.path.join(HERE, "../../../docs/*.md"))):
        with open(path, encoding="utf-8") as file:
            yield file.read()
    for _ in range(20):
        yield from SENTENCES
    yield from TEXTS


def train(vocabulary, before):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = before
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        corpus(),
        trainers.BpeTrainer(
            vocab_size=vocabulary, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
        ),
    )
    return tokenizer


def special(text):
    return AddedToken(text, special=True, normalized=False)


def train_gpt2():
    folder = os.path.join(DATA, "gpt2")
    os.makedirs(folder, exist_ok=True)
    tokenizer = train(900, pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.model.save(folder)
    path = os.path.join(folder, "vocab.json")
    with open(path, encoding="utf-8") as file:
        words = json.load(file)
    words["<|endoftext|>"] = len(words)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(words, file)


def bytes_of(word):
    alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if not hasattr(bytes_of, "table"):
        visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [b for b in range(256) if b not in visible]
        bytes_of.table = {chr(b): b for b in visible} | {chr(256 + i): b for i, b in enumerate(others)}
        assert set(bytes_of.table) == set(alphabet.alphabet())
    return bytes(bytes_of.table[c] for c in word)


def train_llama3():
    folder = os.path.join(DATA, "llama3")
    os.makedirs(folder, exist_ok=True)
    tokenizer = train(
        1000,
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
    )
    with open(os.path.join(folder, "tokenizer.tiktoken"), "w", encoding="ascii") as file:
        for word, rank in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
            file.write("%s %d\n" % (base64.b64encode(bytes_of(word)).decode(), rank))
    tokenizer.add_special_tokens([special(t) for t in ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]])
    tokenizer.add_tokens([AddedToken("snowball", normalized=False), AddedToken("<extra>", normalized=False)])
    begin = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A",
                pair="<|begin_of_text|> $A <|begin_of_text|> $B",
                special_tokens=[("<|begin_of_text|>", begin)],
            ),
        ]
    )
    path = os.path.join(folder, "tokenizer.json")
    tokenizer.save(path, pretty=False)
    with open(path, encoding="utf-8") as file:
        settings = json.load(file)
    settings["model"]["ignore_merges"] = True
    with open(path, "w", encoding="utf-8") as file:
        json.dump(settings, file)


def open_gpt2():
    folder = os.path.join(DATA, "gpt2")
    model = models.BPE.from_file(os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt"))
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([special("<|endoftext|>")])
    return tokenizer


def open_tiktoken():
    with open(os.path.join(DATA, "llama3", "tokenizer.tiktoken"), encoding="ascii") as file:
        ranks = {base64.b64decode(w): int(r) for w, r in (line.split() for line in file)}
    return tiktoken.Encoding("small", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens={})


def digest(ids):
    return hashlib.sha256(struct.pack("<%dI" % len(ids), *ids)).hexdigest()


def main():
    if "--train" in sys.argv:
        train_gpt2()
        train_llama3()
    gpt2 = open_gpt2()
    llama3 = Tokenizer.from_file(os.path.join(DATA, "llama3", "tokenizer.json"))
    encoding = open_tiktoken()

    def ids(tokenizer, text, ordinary=False):
        tokenizer.encode_special_tokens = ordinary
        return tokenizer.encode(text, add_special_tokens=False).ids

    cases = []
    for given in [*TEXTS, *BYTES, *random_texts()]:
        raw = given if isinstance(given, bytes) else given.encode("utf-8")
        text = raw.decode("utf-8", errors="replace")
        cases.append(
            {
                "bytes": base64.b64encode(raw).decode(),
                "text": base64.b64encode(text.encode("utf-8")).decode(),
                "gpt2": ids(gpt2, text),
                "gpt2_ordinary": ids(gpt2, text, True),
                "llama3": ids(llama3, text),
                "llama3_ordinary": ids(llama3, text, True),
                "tiktoken": encoding.encode_ordinary(text),
            }
        )
    long = []
    for piece, times in LONG:
        text = piece * times
        long.append(
            {"piece": piece, "times": times, "gpt2": digest(ids(gpt2, text)), "llama3": digest(ids(llama3, text))}
        )
    versions = {"tokenizers": tokenizers.__version__, "tiktoken": tiktoken.__version__}
    with open(os.path.join(DATA, "parity.json"), "w", encoding="ascii") as file:
        file.write('{"versions": %s,\n"cases": [\n' % json.dumps(versions))
        file.write(",\n".join(json.dumps(case) for case in cases))
        file.write('\n],\n"long": [\n')
        file.write(",\n".join(json.dumps(case) for case in long))
        file.write("\n]}\n")


if __name__ == "__main__":
    main()
