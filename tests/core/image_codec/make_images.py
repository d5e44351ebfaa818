#!/usr/bin/env python3
"""Makes images.json: small PNG and JPEG files, and the pixels that Pillow decodes of them.

  pip install pillow==13.0.0 && python3 tests/core/image_codec/make_images.py

PNG files come from the few lines below, so that there is one of every kind that the format has, JPEG files from Pillow
(libjpeg-turbo). Pixels are Image.open(...).convert("RGB"); of 16 bits of grey, of which Pillow makes something else,
the upper eight.
"""

import base64
import io
import json
import os
import random
import struct
import zlib

from PIL import Image

OUTPUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "images.json")
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def packed(values, depth):
    bits = "".join(format(value, "0%db" % depth) for value in values)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def png(width, height, depth, kind, samples, interlaced=False, others=b""):
    """`samples`: rows of rows of pixels, each a tuple of values; `others`: chunks before the pixels."""
    passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
    data = b""
    for left, top, right, down in passes:
        for y in range(top, height, down):
            row = [value for x in range(left, width, right) for value in samples[y][x]]
            if row:
                data += b"\0" + packed(row, depth)
    header = struct.pack(">2I5B", width, height, depth, kind, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + others + chunk(b"IDAT", zlib.compress(data, 9)) +
            chunk(b"IEND", b""))


def samples(width, height, depth, kind):
    draw = random.Random(width * 10 + kind)
    return [[tuple(draw.randrange(2**depth) for _ in range(CHANNELS[kind])) for _ in range(width)]
            for _ in range(height)]


def smooth(width, height, mode):
    """What a photograph has: pixels that are like their neighbours."""
    image = Image.new("RGB", (width, height))
    for y in range(height):
        for x in range(width):
            image.putpixel((x, y), ((x * 13 + y * 3) % 256, (200 - x * 5 + y * 7) % 256, (x * y + 40) % 256))
    return image.convert(mode)


def jpeg(width, height, mode="RGB", **options):
    file = io.BytesIO()
    smooth(width, height, mode).save(file, "JPEG", **options)
    return file.getvalue()


def pixels(file):
    image = Image.open(io.BytesIO(file)).convert("RGB")
    return image.width, image.height, image.tobytes()


def made_files():
    palette = chunk(b"PLTE", bytes(range(5, 5 + 48)))
    for depth in (1, 2, 4, 8, 16):
        for kind, name in ((0, "grey"), (2, "rgb"), (3, "palette"), (4, "grey_alpha"), (6, "rgba")):
            if (kind != 0 and depth < 8 and kind != 3) or (kind == 3 and depth == 16):
                continue
            for interlaced in (False, True):
                values = samples(7, 5, min(depth, 4) if kind == 3 else depth, kind)
                file = png(7, 5, depth, kind, values, interlaced, palette if kind == 3 else b"")
                upper = b"".join(bytes([v >> 8] * 3) for row in values for (v, *_) in row)
                known = (7, 5, upper) if depth == 16 and kind in (0, 4) else None
                yield "png_%s_%d%s" % (name, depth, "_interlaced" * interlaced), file, known
    values = samples(7, 5, 8, 2)
    yield "png_rgb_transparent", png(7, 5, 8, 2, values, False, chunk(b"tRNS", bytes(6))), None
    yield "png_rgb_gamma", png(7, 5, 8, 2, values, False, chunk(b"gAMA", struct.pack(">I", 100000))), None
    yield "png_palette_transparent", png(
        7, 5, 4, 3, samples(7, 5, 4, 3), False, palette + chunk(b"tRNS", bytes(range(16)))), None
    yield "png_text_and_profile", png(7, 5, 8, 2, values, False, (
        chunk(b"iCCP", b"p\0\0" + zlib.compress(b"no profile")) + chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(10**6))))), None
    yield "png_1x1", png(1, 1, 8, 2, [[(1, 2, 3)]]), None
    for name, subsampling in (("444", 0), ("422", 1), ("420", 2)):
        yield "jpeg_" + name, jpeg(35, 29, quality=75, subsampling=subsampling), None
        yield "jpeg_%s_progressive" % name, jpeg(35, 29, quality=90, subsampling=subsampling, progressive=True), None
    yield "jpeg_grey", jpeg(19, 23, "L", quality=75), None
    yield "jpeg_rgb", jpeg(19, 23, quality=75, keep_rgb=True), None
    yield "jpeg_cmyk", jpeg(19, 23, "CMYK", quality=95), None
    yield "jpeg_restarts", jpeg(35, 29, quality=75, restart_marker_blocks=2), None
    yield "jpeg_1x1", jpeg(1, 1), None


def main():
    images = []
    for name, file, known in made_files():
        width, height, rgb = known or pixels(file)
        images.append({
            "name": name, "width": width, "height": height,
            "file": base64.b64encode(file).decode(), "rgb": base64.b64encode(rgb).decode()})
    with open(OUTPUT, "w") as output:
        json.dump(images, output, indent=0)
        output.write("\n")


main()
