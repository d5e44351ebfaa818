#!/usr/bin/env python3
"""Checks that what the documents point to is there.

  tools/check_docs.py [FILE.md ...]      default: all

Links to files and headings; paths of this repository ("core/mesh/mesh.h", or
without the end, "core/mesh/mesh"; "tests/parallel/ddp/*_test.cc"); labels
("//tools:train", "//core/..."); and code that is quoted:

  <!-- quotes docs/examples/ddp.cc -->
  ```cpp
  ddp->ZeroGrad();
  ...
  optimizer->Step(0.1);
  ```

whose lines must stand in that file, indented as they may be; where a line is
"...", some are left out. A README.md within docs has a link to each page beside it. Prints a line for each that is not there, and fails if
any is not.
"""

import collections
import fnmatch
import functools
import os
import re
import subprocess
import sys

FOLDERS = "core|datasets|models|parallel|tools|tests|third_party|docs"
PATH = re.compile(r"(?<![\w/.@:-])((?:%s)/[\w/.*-]*[\w*])" % FOLDERS)
LABEL = re.compile(r"(?<![\w:/@])//((?:%s)(?:/[\w-]+)*)(/\.\.\.|:[\w.-]+)?" % FOLDERS)
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.M)
CODE = re.compile(r"^```.*?^```", re.M | re.S)
QUOTE = re.compile(r"^<!-- quotes (\S+) -->\n```\w*\n(.*?)^```", re.M | re.S)
# Paths in other repositories, which the documents name.
ELSEWHERE = {"tests/test_balance.py"}


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


def anchors_of(text):
    """The anchors of a page's headings, as GitHub makes them."""
    for heading in HEADING.findall(CODE.sub("", text)):
        words = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        yield words.replace(" ", "-")


class Tree:
    """What there is to point to."""

    def __init__(self):
        self.files = set(run("git", "ls-files", "--cached", "--others", "--exclude-standard").splitlines())
        self.files = {file for file in self.files if os.path.exists(file)}
        self.folders = {""}
        for file in self.files:
            folder = os.path.dirname(file)
            while folder:
                self.folders.add(folder)
                folder = os.path.dirname(folder)
        self.stems = {re.sub(r"(_test)?\.\w+$", "", file) for file in self.files}
        self.stems |= {re.sub(r"\.\w+$", "", file) for file in self.files}

    @functools.cached_property
    def labels(self):
        return set(run("bazel", "query", "--noshow_progress", "--order_output=no", "//...").splitlines())

    def has_path(self, path):
        if "*" in path:
            return bool(fnmatch.filter(self.files | self.stems, path))
        return path in self.files or path in self.folders or path in self.stems

    def has_label(self, package, rest):
        if rest == "/...":
            return package in self.folders
        name = rest[1:] if rest else os.path.basename(package)
        return f"//{package}:{name}" in self.labels or f"{package}/{name}" in self.files


def check_link(tree, file, target):
    if re.match(r"[a-z]+:", target):
        return True
    path, _, anchor = target.partition("#")
    full = os.path.normpath(os.path.join(os.path.dirname(file), path)) if path else file
    if full not in tree.files and full not in tree.folders:
        return False
    if not anchor:
        return True
    with open(full, encoding="utf-8") as page:
        return anchor in anchors_of(page.read())


def parts_of(quote):
    """What stands between the "..." of a quote: lists of lines."""
    parts = [[]]
    for line in quote.splitlines():
        if line.strip() == "...":
            parts.append([])
        elif line.strip() or parts[-1]:
            parts[-1].append(line.rstrip())
    return [part for part in parts if part]


def find_lines(part, lines, begin):
    """Where `part` ends in `lines`, from `begin` on, or None."""
    first = part[0].lstrip()
    for at in range(begin, len(lines) - len(part) + 1):
        if lines[at].lstrip() != first:
            continue
        # All lines are as much deeper, or less deep, as the first one is.
        deeper = len(lines[at]) - len(part[0])
        shifted = [line and " " * deeper + line[max(0, -deeper):] for line in part]
        if shifted == lines[at:at + len(part)]:
            return at + len(part)
    return None


def missing_line(quote, text):
    """The line with which a part of `quote` begins that `text` lacks, or None."""
    lines = [line.rstrip() for line in text.splitlines()]
    at = 0
    for part in parts_of(quote):
        while part and not part[-1]:
            part.pop()
        at = find_lines(part, lines, at)
        if at is None:
            return part[0].strip()
    return None


def check_quote(file, quote):
    if not os.path.isfile(file):
        return f"a quote of {file}, which is not there"
    with open(file, encoding="utf-8") as source:
        missing = missing_line(quote, source.read())
    return missing and f'{file} has not, or not in this place, what begins with "{missing}"'


def check_file(tree, file):
    with open(file, encoding="utf-8") as page:
        text = page.read()
    wrong = collections.OrderedDict()

    def note(match, what):
        line = text.count("\n", 0, match.start()) + 1
        wrong[f"{file}:{line}: {what}"] = True

    for match in LINK.finditer(text):
        if not check_link(tree, file, match.group(1)):
            note(match, f"a link to {match.group(1)}, which is not there")
    for match in PATH.finditer(text):
        path = match.group(1).replace("NAME", "*")  # "third_party/NAME"
        if path not in ELSEWHERE and not tree.has_path(path):
            note(match, f"no file or folder is called {path}")
    for match in LABEL.finditer(text):
        if not tree.has_label(match.group(1), match.group(2)):
            note(match, f"no target is called {match.group(0)}")
    for match in QUOTE.finditer(text):
        problem = check_quote(match.group(1), match.group(2))
        if problem:
            note(match, problem)
    folder, name = os.path.split(file)
    if name == "README.md" and folder.split("/")[0] == "docs":
        linked = {os.path.normpath(os.path.join(folder, target)) for target in LINK.findall(text)}
        beside = {page for page in tree.files if os.path.dirname(page) == folder and page.endswith(".md")}
        for page in sorted(beside - linked - {file}):
            wrong[f"{file}: no link to {page}"] = True
    return list(wrong)


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    tree = Tree()
    pages = sys.argv[1:] or sorted(file for file in tree.files if file.endswith(".md"))
    wrong = [line for page in pages for line in check_file(tree, page)]
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
