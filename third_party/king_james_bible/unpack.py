"""Unpacks the text of Debian's package bible-kjv-text.

  unpack.py BIBLE_DATA TEXT

The file has a header, of which bytes 84-87 are the size of a part of the text and bytes 88-91 the number of parts, then
each part's place in the file (4 bytes, as all numbers here big-endian), then the parts. Each is compressed by itself, as
compress(1) does it but without its header; gzip(1) reads that.
"""

import subprocess
import sys

MAGIC = b"EC02Compressed Data File"
HEADER = b"\x1f\x9d\x90"  # of compress(1): codes of up to 16 bits, the table is emptied when it is full


def numbers(data, begin, count):
    return [int.from_bytes(data[at : at + 4], "big") for at in range(begin, begin + 4 * count, 4)]


def unpacked(part):
    return subprocess.run(["gzip", "-dc"], input=HEADER + part, stdout=subprocess.PIPE, check=True).stdout


def main(source, destination):
    with open(source, "rb") as file:
        data = file.read()
    if not data.startswith(MAGIC):
        sys.exit("unpack: %s is no text of bible-kjv-text" % source)
    size, count = numbers(data, 84, 2)
    places = numbers(data, 92, count) + [len(data)]
    parts = [unpacked(data[begin:end]) for begin, end in zip(places, places[1:])]
    if any(len(part) != size for part in parts[:-1]):
        sys.exit("unpack: a part of %s is not of %d bytes" % (source, size))
    with open(destination, "wb") as file:
        file.write(b"".join(parts))


main(*sys.argv[1:])
