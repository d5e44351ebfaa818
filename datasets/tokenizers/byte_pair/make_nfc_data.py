#!/usr/bin/env python3
"""Writes nfc_data.cc: Unicode's canonical decompositions and combining classes, as Python's unicodedata has them.

  python3.11 make_nfc_data.py > nfc_data.cc

Each table is a row of numbers, seven bits a byte, the low ones first, a byte of 128 and more going on; in Base64.
"""

import base64
import unicodedata

SURROGATES = range(0xD800, 0xE000)
HANGUL = range(0xAC00, 0xD7A4)  # by arithmetic
CODES = [code for code in range(0x110000) if code not in SURROGATES]

HEAD = """\
// Made by make_nfc_data.py from Unicode %s.

#include "datasets/tokenizers/byte_pair/nfc.h"

namespace tandem {
"""


def numbers(values):
    row = bytearray()
    for value in values:
        while value > 127:
            row.append(128 | value & 127)
            value >>= 7
        row.append(value)
    return base64.b64encode(bytes(row)).decode()


def decompositions():
    """For each character: how far behind the one before, then what it becomes, and whether the two become it again."""
    row, before = [], 0
    for code in CODES:
        fields = unicodedata.decomposition(chr(code))
        if not fields or fields.startswith("<") or code in HANGUL:
            continue
        parts = [int(field, 16) for field in fields.split()]
        composes = unicodedata.normalize("NFC", chr(code)) == chr(code)
        row += [code - before, parts[0], 2 * (parts[1] if len(parts) > 1 else 0) + composes]
        before = code
    return numbers(row)


def classes():
    """For neighbours of one class: how far behind those before, how many there are besides, their class."""
    ranges = []
    for code in CODES:
        combining_class = unicodedata.combining(chr(code))
        if combining_class and ranges and ranges[-1][1:] == [code - 1, combining_class]:
            ranges[-1][1] = code
        elif combining_class:
            ranges.append([code, code, combining_class])
    row, before = [], 0
    for first, last, combining_class in ranges:
        row += [first - before, last - first, combining_class]
        before = last
    return numbers(row)


def write(name, text):
    print(f"\nconst char {name}[] =")
    lines = [text[i : i + 74] for i in range(0, len(text), 74)]
    print("\n".join(f'    "{line}"' for line in lines) + ";")


if __name__ == "__main__":
    print(HEAD % unicodedata.unidata_version, end="")
    write("kNfcDecompositions", decompositions())
    write("kNfcClasses", classes())
    print("\n}  // namespace tandem")
