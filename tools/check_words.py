#!/usr/bin/env python3
"""Checks that comments and names are plain English.

  tools/check_words.py        prints what is not, and what to write instead; fails if anything is
  tools/check_words.py DIR    the same of another Git folder

A comment is a sentence or a noun phrase: it does not begin with Of, That, Those, Who, Whose or As.
Names are the field's: neither the names that only this project had, nor a variable `its`. Functions
of product headers that return a value are named by the value (StateBytes), without Of (StateBytesOf).
"""

import os
import re
import subprocess
import sys

FOLDERS = ["core", "datasets", "models", "parallel", "tests", "tools", "docs"]
FILES = ["*.h", "*.cc", "*.bzl", "BUILD", "*.py", "*.sh"]
PRODUCT = re.compile(r"(core|datasets|models|parallel|tools)/.*\.h$")
# This file, which names them, and its test.
EXCEPT = re.compile(r"(^|/)check_words(_test)?\.(py|sh)$")

BEGINNING = re.compile(r"(//+|#+)[ \t]*(Of|That|Those|Who|Whose|As(?! of\b))\b")
NAMES = {
    "BelongTo": "Involve", "Camp": "Peers", "Camps": "Peers", "Distrust": "Suspect",
    "DropTheSilent": "RemoveUnresponsive", "EndedToo": "HasEnded", "GoesOnWithout": "ContinuesWithout",
    "Hurry": "ShortenTimeout", "LookAfter": "Supervise", "LookAround": "Poll", "LeftToSecond": "Delegated",
    "PassesBy": "Skips", "RingBells": "Notify", "Roster": "Members", "ShareFate": "AbortTogether",
    "SomebodyWaits": "HasWaiters", "TryDoubtful": "TryUnreliable", "Visitors": "Clients",
    "kManners": "kHandshakeTimeout",
}
NAME = re.compile(r"\b(%s)\b" % "|".join(NAMES))
# Where one is declared.
ITS = re.compile(r"^(?!\s*return\b).*([\w>][ &*]+|[(, ]&|\[|, )its( :|\s*(=(?!=)|[;,){(\]])|$)|^ *(for )?its( in |,? .*= )")
# A declaration: a type, a name, and parameters.
OF = re.compile(r"^\s*(?!return\b|explicit\b|else\b)(?:[\w:<>,&*\[\]]+[ &*]+)+(\w*Of)\(")
# Where a class, or a part of one, begins or ends.
ACCESS = re.compile(r"\s*(public|protected|private):|(?:(})|(class|struct) [^;]*$)")
# Terms that end so, and a value's own maker, Kind::Of(value).
ALLOWED = {"AllOf", "AnyOf", "IndexOf", "Of"}
# Names that programs use, or that several rooms have.
ALLOWED |= set("DevicesOf EndOf LayersOf LossOf MemoryOf NameOf NamesOf PlaceOf SpanOf TensorsOf TimeOf".split())
TEXT = re.compile(r'R"(\w*)\(.*?\)\1"|""".*?"""|' + r'"(?:\\.|[^"\\\n])*"', re.S)


def without_texts(source):
    """The source, each of whose string literals is empty, on the lines where it was."""
    return TEXT.sub(lambda found: '""' + "\n" * found[0].count("\n"), source)


def findings(path, source):
    """(line, what, and what to write instead), for each."""
    marks = ("//",) if path.endswith((".h", ".cc")) else ("#",)
    in_comment, is_public = False, True
    for number, line in enumerate(without_texts(source).splitlines(), 1):
        is_comment = line.lstrip().startswith(marks)
        begins = is_comment and not in_comment and BEGINNING.match(line.lstrip())
        in_comment = is_comment
        if begins:
            yield number, f'a comment begins with "{begins[2]}"', "a subject and a verb, or a noun phrase"
        for name in NAME.findall(line):
            yield number, f"the name {name}", f"the field's term, such as {NAMES[name]}"
        if is_comment:
            continue
        code = line.split(marks[0])[0]
        if ITS.search(code):
            yield number, "a variable called its", "what it holds"
        access = ACCESS.match(code)
        if access:
            is_public = access[1] == "public" or access[2] == "}" or access[3] == "struct"
        declared = OF.match(code)
        if declared and is_public and PRODUCT.match(path) and declared[1] not in ALLOWED:
            yield number, f"the function {declared[1]}", f"{declared[1][:-2]}, or another name of the value"


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    patterns = [f":(glob){folder}/**/{file}" for folder in FOLDERS for file in FILES]
    wrong = 0
    for path in subprocess.check_output(["git", "ls-files", "-z", *patterns], text=True).split("\0"):
        if path and os.path.isfile(path) and not EXCEPT.search(path):
            with open(path, encoding="utf-8") as file:
                for line, what, instead in findings(path, file.read()):
                    print(f"{path}:{line}: {what}: write {instead}")
                    wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
