#!/usr/bin/env python3
"""Makes packed.json: a text of 2000 lines ("line 0", "line 1", ...), as gzip and zstd pack it.

  pip install zstandard==0.25.0 && python3 tests/tools/texts/make_packed.py
"""

import base64
import gzip
import json
import os
import struct

import zstandard

OUTPUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "packed.json")
TEXT = "".join("line %d\n" % i for i in range(2000)).encode()


def zstd(data, window_log=0, **options):
    """Without the size in its header, as `... | zstd` writes it."""
    parameters = zstandard.ZstdCompressionParameters.from_level(19, window_log=window_log, **options)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return packer.compress(data) + packer.flush()


def main():
    half = len(TEXT) // 2
    skipped = struct.pack("<2I", 0x184D2A50, 5) + b"notes"
    files = {
        "gzip": gzip.compress(TEXT, mtime=0),
        "gzip_members": gzip.compress(TEXT[:half], mtime=0) + gzip.compress(TEXT[half:], mtime=0),
        "zstd": zstandard.ZstdCompressor(level=3).compress(TEXT),
        "zstd_checked": zstd(TEXT, write_checksum=1),
        "zstd_frames": zstd(TEXT[:half]) + skipped + zstd(TEXT[half:]),
        "zstd_128_mib": zstd(TEXT, window_log=27),
        "zstd_256_mib": zstd(TEXT, window_log=28),
    }
    with open(OUTPUT, "w") as output:
        json.dump({name: base64.b64encode(file).decode() for name, file in files.items()}, output, indent=0)
        output.write("\n")


main()
