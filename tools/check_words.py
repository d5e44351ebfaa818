#!/usr/bin/env python3
"""Checks that comments, names and pages are plain English.

  tools/check_words.py        prints what is not, and what to write instead; fails if anything is
  tools/check_words.py DIR    the same of another Git folder

A comment is a sentence or a noun phrase: it does not begin with Of, That, Those, Who, Whose or As.
Names are the field's: neither the names that only this project had, nor a variable `its`. Functions
of product headers that return a value are named by the value (StateBytes), without Of (StateBytesOf).

No sentence of a page begins with Of, That, Those, Who or Whose, and pages have the field's words in place of
those that only this project had. What a page has as code or in double quotes is not read. The same holds for
the texts of programs: their messages and what --help says of a flag.
"""

import os
import re
import subprocess
import sys

FOLDERS = ["core", "datasets", "models", "parallel", "tests", "tools", "docs"]
FILES = ["*.h", "*.cc", "*.def", "*.bzl", "BUILD", "*.py", "*.sh"]
PAGES = ["*.md", "docs/*.md", "docs/decisions/*.md", "tests/**/README.md", "third_party/**/README.md"]
PRODUCT = re.compile(r"(core|datasets|models|parallel|tools)/.*\.h$")
# Files with the texts of programs.
PROGRAM = re.compile(r"(core|datasets|models|parallel|tools)/.*\.(h|cc|def)$")
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

# What a page has that is not its own prose: code in blocks and lines, comments, targets of links, quotations, headings.
NOT_PROSE = re.compile(
    r"^```.*?^```|(?<=\n\n) {4,}\S[^\n]*(?:\n(?: {4}[^\n]*)?)*|<!--.*?-->|`[^`]+`|\]\([^)\s]*\)|^#+ [^\n]*"
    r'|"(?:[^"\n|]|\n(?!\s*\n))*"', re.M | re.S)
SENTENCE = re.compile(r"(?<![\w-])(Of|That|Those|Who|Whose)(?=\s+[\w`*])")
# A text of a program: literals behind each other. One without a space is a name.
LITERAL = r'"(?:\\.|[^"\\\n])*"'
LITERAL_OR_NO_TEXT = re.compile(rf"^#include.*|({LITERAL})|//.*", re.M)
LITERALS = re.compile(rf"{LITERAL}(?:\s*{LITERAL})*")
BETWEEN = re.compile(r'"\s*"')
TEXT_BEGINNING = re.compile(r"(Of|That|Those|Who|Whose)\b")
# Words of pages that only this project had, and what a reader knows.
WORDS = [
    (r"houses?", "project, or own"),
    (r"whoever", "any process that, or callers that"),
    (r"in one piece", "whole, or at once"),
    (r"rooms?(?! for\b)", "package, or folder"),
    (r"(?:its|their) shares?(?! of\b)", "its part, or slice"),
    (r"one's own", "your own"),
    (r"what is there", "a noun"),
    (r"the others", "the rest, or the other ranks"),
    (r"floors?", "lower bound"),
    (r"(?:has|have) not(?=\s*(?:[.,;:|)]|\n\s*\n))", "lacks, or does not have"),
]
WORDS = [(re.compile(r"(?<![\w-])(?:%s)(?![\w-])" % words.replace(" ", r"\s+"), re.I), instead) for words, instead in WORDS]


def without_texts(source):
    """The source, each of whose string literals is empty, on the lines where it was."""
    return TEXT.sub(lambda found: '""' + "\n" * found[0].count("\n"), source)


def findings(path, source):
    """(line, what, and what to write instead), for each."""
    marks = ("//",) if path.endswith((".h", ".cc", ".def")) else ("#",)
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


def text_findings(source):
    """(line, what, and what to write instead), for each, of the texts of a program."""
    source = LITERAL_OR_NO_TEXT.sub(lambda found: found[1] or "", source)
    for literals in LITERALS.finditer(source):
        text = BETWEEN.sub("", literals[0])[1:-1]
        if " " not in text:
            continue
        line = source.count("\n", 0, literals.start()) + 1
        begins = TEXT_BEGINNING.match(text)
        if begins:
            yield line, f'a text begins with "{begins[1]}"', "a subject and a verb, or a noun phrase"
        for words, instead in WORDS:
            for found in words.finditer(text):
                yield line, f'"{found[0]}"', instead


def page_findings(text):
    """(line, what, and what to write instead), for each, of a page in Markdown."""
    prose = NOT_PROSE.sub(lambda found: "`" + re.sub(r"[^\n]", " ", found[0][2:]) + "`", text)
    for found in SENTENCE.finditer(prose):
        yield prose.count("\n", 0, found.start()) + 1, f'a sentence begins with "{found[1]}"', "a subject and a verb"
    for words, instead in WORDS:
        for found in words.finditer(prose):
            yield prose.count("\n", 0, found.start()) + 1, f'"{" ".join(found[0].split())}"', instead


def tracked(patterns):
    """The files of Git that match, without this one and its test."""
    files = subprocess.check_output(["git", "ls-files", "-z", *(f":(glob){each}" for each in patterns)], text=True)
    return [path for path in files.split("\0") if path and os.path.isfile(path) and not EXCEPT.search(path)]


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    found = []
    for path in tracked(f"{folder}/**/{file}" for folder in FOLDERS for file in FILES):
        with open(path, encoding="utf-8") as file:
            source = file.read()
        found += [(path, *each) for each in findings(path, source)]
        if PROGRAM.match(path):
            found += [(path, *each) for each in text_findings(source)]
    for path in tracked(PAGES):
        with open(path, encoding="utf-8") as file:
            found += [(path, *each) for each in sorted(page_findings(file.read()))]
    for path, line, what, instead in found:
        print(f"{path}:{line}: {what}: write {instead}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
