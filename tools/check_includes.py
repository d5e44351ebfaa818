#!/usr/bin/env python3
"""Keeps files from parsing LibTorch's long headers unseen.

  tools/check_includes.py           prints what is wrong, and fails if anything is
  tools/check_includes.py --list    prints of each target the lines that it costs
  tools/check_includes.py TREE LIBTORCH DESCRIPTION
                                    the same of another tree and LibTorch's headers,
                                    with a description (JSON) of targets: for tests

What a C++ file costs to compile is mostly the lines of LibTorch that it includes,
through whatever headers. They are counted here, each header once, as if every
#if were true: by lines, not by time. Lines that its precompiled header has
(third_party/precompiled, docs/contributing.md) are not parsed but loaded, all of
them, at a fifth of the cost. A target is to have the precompiled header with
which it costs least. Those whose names end with _test are for files of tests.
"""

import functools
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree

# The cost of a line that is loaded, as a share of that of a line that is parsed. It was measured.
LOADED = 0.2
# The end of the names of precompiled headers for tests.
TEST = "_test"
# What a target may cost more than it must, in lines a compilation.
SLACK = 10000
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.M)
# LibTorch's folders, whose many small headers (ATen/ops/add.h) are counted as any other.
LIBTORCH = ("", "torch/csrc/api/include")


def bazel(*arguments):
    result = subprocess.run(["bazel", *arguments], capture_output=True, check=False, text=True)
    if result.returncode != 0:
        sys.exit(result.stderr)
    return result.stdout


def libtorch():
    base = bazel("info", "output_base").strip()
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

    def reached(self, names):
        """LibTorch's headers that one with these #includes includes, with their lines."""
        seen = set()
        waiting = [self.find(name, "") for name in names]
        lines = {}
        while waiting:
            file = waiting.pop()
            if file is None or file in seen:
                continue
            seen.add(file)
            its_lines, included = self.read(file)
            if file.startswith(self.root):
                lines[file] = its_lines
            waiting += included
        return lines


class Costs:
    """What files cost with each precompiled header, in lines."""

    def __init__(self, includes, precompiled):
        self.includes = includes
        self.loaded = {name: includes.reached(headers) for name, headers in precompiled.items()}

    def of_target(self, units, name):
        return round(sum(self._of_unit(tuple(unit), name) for unit in units))

    def _of_unit(self, unit, name):
        loaded = self.loaded.get(name, {})
        parsed = sum(lines for header, lines in self._reached(unit).items() if header not in loaded)
        return parsed + LOADED * sum(loaded.values())

    @functools.lru_cache(maxsize=None)
    def _reached(self, unit):
        return self.includes.reached(unit)


def complaints(costs, targets):
    for target, (units, name) in sorted(targets.items()):
        now = costs.of_target(units, name)
        alike = [each for each in costs.loaded if each.endswith(TEST) == name.endswith(TEST)]
        least, best = min((costs.of_target(units, each), each.removesuffix(TEST)) for each in alike)
        if now > least + SLACK * len(units):
            yield (f'{target} costs {now} lines of LibTorch: {least} with precompiled = "{best}"; '
                   f"or include lighter headers")


def of_rules(query, read):
    """What `read` makes of the lists of strings of each rule, by name; None: nothing."""
    tree = xml.etree.ElementTree.fromstring(bazel("query", "--output=xml", query))
    found = {}
    for rule in tree.iter("rule"):
        lists = {each.get("name"): [item.get("value") for item in each] for each in rule.iter("list")}
        made = read(lists)
        if made is not None:
            found[rule.get("name")] = made
    return found


def headers_of(lists):
    return lists["headers"]


def units_of(lists):
    """The files of each of a target's compilations, and the name of its precompiled header (empty: none)."""
    def files(attribute):
        paths = [label[2:].replace(":", "/") for label in lists.get(attribute, [])]
        return [path for path in paths if path.endswith(".cc") and os.path.isfile(path)]
    units = [[file] for file in files("srcs")]
    if files("textual_hdrs"):
        units.append(files("textual_hdrs"))
    options = " ".join(lists.get("copts", []))
    name = re.search(r"third_party/precompiled/(\w+)[.]h", options)
    return (units, name[1] if name else "") if units else None


def of_workspace():
    precompiled = of_rules("kind(precompiled_header, //third_party/precompiled:all)", headers_of)
    return {
        "precompiled": {label.split(":")[1]: headers for label, headers in precompiled.items()},
        "targets": of_rules('kind("cc_(binary|library|test) rule", //...)', units_of),
    }


def main(arguments):
    if len(arguments) == 3:
        with open(arguments[2], encoding="utf-8") as file:
            description = json.load(file)
        os.chdir(arguments[0])
        headers = arguments[1]
    elif arguments in ([], ["--list"]):
        os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
        headers = libtorch()
        description = of_workspace()
    else:
        sys.exit(__doc__)
    costs = Costs(Includes(headers), description["precompiled"])
    targets = description["targets"]
    if arguments == ["--list"]:
        for target, (units, name) in sorted(targets.items()):
            print(f"{costs.of_target(units, name):8} {name or '-':10} {target}")
        return
    wrong = list(complaints(costs, targets))
    for each in wrong:
        print(each)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
