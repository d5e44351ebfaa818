#!/usr/bin/env python3
"""Makes resized.json: images, and what Pillow makes of them by resizing and a crop from the middle.

  pip install pillow==13.0.0 && python3 tests/datasets/images/make_resized.py
"""

import base64
import json
import os
import random

from PIL import Image

OUTPUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "resized.json")


def image(width, height):
    draw = random.Random(width * 1000 + height)
    pixels = bytearray()
    for y in range(height):
        for x in range(width):
            noise = draw.randrange(60)
            pixels += bytes(((x * 9 + noise) % 256, (y * 11 + noise) % 256, (x * y + noise) % 256))
    return Image.frombytes("RGB", (width, height), bytes(pixels))


def prepared(original, resize, size):
    """torchvision's Resize(resize) and CenterCrop(size), of Pillow's images."""
    width, height = original.size
    if width <= height:
        extent = resize, resize * height // width
    else:
        extent = resize * width // height, resize
    resized = original.resize(extent, Image.Resampling.BILINEAR)
    left, top = round((extent[0] - size) / 2), round((extent[1] - size) / 2)
    return resized.crop((left, top, left + size, top + size))


def main():
    cases = []
    for width, height, resize, size in (
            (53, 41, 16, 13), (41, 53, 16, 13), (29, 29, 29, 29), (37, 29, 29, 17), (5, 7, 11, 11), (7, 5, 12, 9),
            (1, 1, 4, 4), (3, 31, 5, 5), (61, 47, 46, 32)):
        original = image(width, height)
        cases.append({
            "width": width, "height": height, "resize": resize, "size": size,
            "pixels": base64.b64encode(original.tobytes()).decode(),
            "expected": base64.b64encode(prepared(original, resize, size).tobytes()).decode()})
    with open(OUTPUT, "w") as output:
        json.dump(cases, output, indent=0)
        output.write("\n")


main()
