#!/usr/bin/env python3
"""Keeps files from including LibTorch's long headers unseen.

  tools/check_includes.py           prints what is wrong, and fails if anything is
  tools/check_includes.py --list    prints lines of LibTorch and path of each file
  tools/check_includes.py TREE LIBTORCH [FILE...]
                                    the same of another tree and LibTorch's headers,
                                    FILEs precompiled: for tests

What a C++ file costs to compile is mostly the lines of LibTorch that it includes,
through whatever headers. They are counted here, each header once, as if every
#if were true: by lines, not by time. A file with more than LIMIT of them belongs
to a target with `heavy_headers = True`, whose precompiled header has them
(docs/building.md); a file of such a target that has fewer would lose by it.
"""

import functools
import os
import re
import subprocess
import sys

# Between files that include tensors or autograd (60,000 to 215,000) and those that
# include modules or c10d's process groups (250,000 to 350,000).
LIMIT = 240000
FLOORS = ("core", "datasets", "docs", "models", "parallel", "tests", "tools")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
# Whose many small headers (ATen/ops/add.h) are counted as any other.
LIBTORCH = ("", "torch/csrc/api/include")


def bazel(*arguments):
    result = subprocess.run(["bazel", *arguments], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, check=True, text=True)
    return result.stdout.split()


def libtorch():
    (base,) = bazel("info", "output_base")
    return os.path.join(base, "external", "libtorch", "torch", "include")


class Includes:
    """The files that a file includes, by path: ours relative, LibTorch's absolute."""

    def __init__(self, root):
        self.root = root

    @functools.lru_cache(maxsize=None)
    def find(self, name, folder):
        if os.path.isfile(name):
            return name
        for place in [folder] + [os.path.join(self.root, each) for each in LIBTORCH]:
            path = os.path.normpath(os.path.join(place, name))
            if path.startswith(self.root) and os.path.isfile(path):
                return path
        return None

    @functools.lru_cache(maxsize=None)
    def read(self, path):
        """Its number of lines, and what it includes."""
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        found = (self.find(name, os.path.dirname(path)) for name in INCLUDE.findall(text))
        return text.count("\n"), [each for each in found if each is not None]

    def lines_of_libtorch(self, path):
        seen = {path}
        waiting = [path]
        lines = 0
        while waiting:
            file = waiting.pop()
            its_lines, included = self.read(file)
            if file.startswith(self.root):
                lines += its_lines
            for each in included:
                if each not in seen:
                    seen.add(each)
                    waiting.append(each)
        return lines


def sources():
    for floor in FLOORS:
        for folder, _, names in os.walk(floor):
            for name in sorted(names):
                if name.endswith(".cc"):
                    yield os.path.join(folder, name)


def complaints(lines, precompiled):
    for path, count in sorted(lines.items()):
        if count > LIMIT and path not in precompiled:
            yield (f"{path} includes {count} lines of LibTorch: include lighter headers, or say "
                   f"heavy_headers = True in its BUILD file")


def of_workspace():
    """LibTorch's headers, and the files that are compiled with them precompiled."""
    labels = bazel("query", 'labels(srcs, attr(copts, "heavy_headers.h", //...))')
    return libtorch(), {label[2:].replace(":", "/") for label in labels}


def main(arguments):
    if len(arguments) >= 2:
        os.chdir(arguments[0])
        headers, precompiled = arguments[1], set(arguments[2:])
    elif arguments in ([], ["--list"]):
        os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
        headers, precompiled = of_workspace()
    else:
        sys.exit(__doc__)
    includes = Includes(headers)
    lines = {path: includes.lines_of_libtorch(path) for path in sources()}
    if arguments == ["--list"]:
        for path, count in sorted(lines.items(), key=lambda each: -each[1]):
            print(f"{count:8} {path}")
        return
    wrong = list(complaints(lines, precompiled))
    for each in wrong:
        print(each)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
