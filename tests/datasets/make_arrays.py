#!/usr/bin/env python3
"""Makes arrays.json: files that numpy.save writes, and what is in them.

  pip install numpy==2.4.6 && python3 tests/datasets/make_arrays.py
"""

import base64
import io
import json
import os

import numpy

OUTPUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "arrays.json")


def saved(array, version=None):
    file = io.BytesIO()
    numpy.lib.format.write_array(file, array, version=version, allow_pickle=True)
    return file.getvalue()


def entry(name, array, version=None, readable=True):
    values = [float(each) for each in array.astype("float64").ravel()] if readable else []
    return {"name": name, "file": base64.b64encode(saved(array, version)).decode(), "shape": list(array.shape),
            "values": values}


def main():
    numbers = numpy.arange(-3, 9).reshape(2, 3, 2)
    entries = [entry(dtype, (abs(numbers) if dtype == "u1" else numbers / (1 if dtype[0] == "i" else 4)).astype(dtype))
               for dtype in ("u1", "i4", "i8", "f2", "f4", "f8")]
    for version in ((1, 0), (2, 0), (3, 0)):
        entries.append(entry("version_%d" % version[0], numbers, version))
    entries.append(entry("scalar", numpy.array(7, "i4")))
    entries.append(entry("row", numpy.arange(5, dtype="f4")))
    entries.append(entry("nothing", numpy.zeros((0, 4), "f4")))
    entries.append(entry("fortran", numpy.asfortranarray(numbers), readable=False))
    entries.append(entry("big_endian", numbers.astype(">f4"), readable=False))
    entries.append(entry("objects", numpy.array([1, "a"], dtype=object), readable=False))
    entries.append(entry("fields", numpy.zeros(3, dtype=[("a", "<f4"), ("b", "<i4")]), readable=False))
    entries.append(entry("complex", numpy.zeros(3, dtype="c8"), readable=False))
    entries.append(entry("booleans", numpy.zeros(3, dtype=bool), readable=False))
    entries.append(entry("texts", numpy.array(["a", "b"]), readable=False))
    with open(OUTPUT, "w") as output:
        json.dump(entries, output, indent=0)
        output.write("\n")


main()
