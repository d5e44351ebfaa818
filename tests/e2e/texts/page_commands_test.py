#!/usr/bin/env python3
"""Runs the commands of the pages as a reader would type them.

  page_commands_test.py run      runs them, each page's in an empty folder of its own, in the page's order
  page_commands_test.py check    finds each program, and has the trainer read each of its command lines

A command is a line of a block ```sh of README.md or docs/*.md, as the shell reads it. Instead of Bazel there is this
file: `bazel run //FOLDER:NAME -- ARGUMENT...` runs the program that Bazel has built for this test. A command of another
kind fails, unless NOT_RUN has it. What needs a network, a GPU or files of the reader's stands in a block without "sh".
"""

import collections
import os
import re
import shlex
import subprocess
import sys
import time

# How many commands the pages have: none is left out, unless this number says so.
COMMANDS = 52
# What is not run as it stands, with the reason.
NOT_RUN = {
    "tools/setup.sh": "installs packages",
    "bazel test //...": "runs this test",
    "bazel build //third_party/king_james_bible:text": "builds what real_text_test has among its data",
}
# Sections of which another test runs the commands.
OTHER_TESTS = {
    ("docs/large_models.md", "From a text to a text"): "real_text_test runs these jobs of 500 steps for 4 steps",
}
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.M | re.S)
CODE = re.compile(r"^```.*?^```", re.M | re.S)
HEADING = re.compile(r"^#+ +(.*)$", re.M)
ROOT = os.path.join(os.environ.get("TEST_SRCDIR", ""), os.environ.get("TEST_WORKSPACE", ""))

Command = collections.namedtuple("Command", "page section line text words")


def commands_of(page, text):
    """The commands of a page: one for each line, and for each part of a line between "&&"."""
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(1)) + 1
        section = HEADING.findall(CODE.sub("", text[:block.start()]))[-1]
        for part in re.split(r"(?<!\\)\n", block[1]):
            for each in part.split(" && "):
                words = shlex.split(each.replace("\\\n", " "), comments=True)
                if words:
                    yield Command(page, section, line, each.strip(), words)
            line += part.count("\n") + 1


def reason_not_to_run(command):
    return NOT_RUN.get(" ".join(command.words)) or OTHER_TESTS.get((command.page, command.section))


def program_of(label):
    """The path of a program, which may be named after its folder."""
    path = os.path.join(ROOT, label.lstrip("/").replace(":", "/"))
    for file in (path, os.path.join(path, os.path.basename(path))):
        if label.startswith("//") and os.path.isfile(file) and os.access(file, os.X_OK):
            return file
    return None


def parsed(words):
    """(program, arguments) of `bazel run //FOLDER:NAME [-- ARGUMENT...]`, or (None, what is wrong)."""
    if len(words) < 3 or words[:2] != ["bazel", "run"] or words[3:4] not in ([], ["--"]):
        return None, "neither `bazel run //FOLDER:NAME -- ARGUMENT...` nor in NOT_RUN"
    program = program_of(words[2])
    return program, words[4:] if program else f"{words[2]} is not among this test's data"


def be_bazel(words):
    program, arguments = parsed(["bazel", *words])
    if program is None:
        sys.exit(f"bazel {' '.join(words)}: {arguments}")
    os.environ["BUILD_WORKING_DIRECTORY"] = os.getcwd()
    os.chdir(ROOT)
    os.execv(program, [program, *arguments])


def run(command, place, timeout=600):
    """What the command says that has failed, or None."""
    environment = dict(os.environ, PATH=os.path.join(place, "..", "bin") + ":" + os.environ["PATH"])
    try:
        done = subprocess.run(["bash", "-c", command], cwd=place, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return f"not done after {timeout} s"
    return f"exit code {done.returncode}\n{done.stdout}" if done.returncode else None


def check(command):
    """What is wrong with a command, which is not run, or None."""
    program, arguments = parsed(command.words)
    if program is None:
        return arguments
    if not program.endswith("train"):
        return None
    done = subprocess.run([program, *arguments, "--print_config"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    return f"exit code {done.returncode}\n{done.stdout}" if done.returncode else None


def run_page(commands, mode, place):
    """Runs the commands of one page up to the first that fails; returns whether all went well."""
    os.makedirs(place)
    for command in commands:
        reason = reason_not_to_run(command)
        print(f"{command.page}:{command.line}: {command.text}" + (f"\n  not run: {reason}" if reason else ""), flush=True)
        if reason:
            continue
        start = time.monotonic()
        wrong = run(command.text, place) if mode == "run" else check(command)
        if wrong:
            print(f"FAILED: {command.page}:{command.line}: {command.text}\n{wrong}")
            return False
        if mode == "run":
            print(f"  {time.monotonic() - start:.1f} s", flush=True)
    return True


def test_reader():
    """This file itself, on a small page."""
    page = "# Page\n```sh\n# Nothing.\ntools/setup.sh && bazel run //a:b  # b\nbazel run //a:b -- \\\n    --c='d e'\n```\n```\nls\n```\n"
    found = list(commands_of("PAGE.md", page))
    assert [(each.line, each.words) for each in found] == [
        (4, ["tools/setup.sh"]),
        (4, ["bazel", "run", "//a:b"]),
        (5, ["bazel", "run", "//a:b", "--", "--c=d e"]),
    ], found
    assert reason_not_to_run(found[0]) and not reason_not_to_run(found[1])
    for refused in ("ls", "bazel build //a:b", "bazel run //a:b", "bazel run //tools:train --epochs=1"):
        assert parsed(refused.split())[0] is None, refused


def main():
    mode = sys.argv[1]
    test_reader()
    pages = ["README.md"] + sorted(f"docs/{name}" for name in os.listdir(f"{ROOT}/docs") if name.endswith(".md"))
    found = {}
    for page in pages:
        with open(f"{ROOT}/{page}", encoding="utf-8") as file:
            found[page] = list(commands_of(page, file.read()))
    count = sum(map(len, found.values()))
    print(f"{count} commands in {len(pages)} pages", flush=True)
    if count != COMMANDS:
        print(f"FAILED: expected {COMMANDS}: a command was added to the pages or removed; say so in COMMANDS")
        return 1
    scratch = os.environ["TEST_TMPDIR"]
    os.makedirs(f"{scratch}/bin")
    os.symlink(os.path.abspath(__file__), f"{scratch}/bin/bazel")
    shard, shards = int(os.environ.get("TEST_SHARD_INDEX", 0)), int(os.environ.get("TEST_TOTAL_SHARDS", 1))
    if "TEST_SHARD_STATUS_FILE" in os.environ:
        open(os.environ["TEST_SHARD_STATUS_FILE"], "w").close()
    mine = [page for page in pages if found[page]][shard::shards]
    good = [run_page(found[page], mode, f"{scratch}/{os.path.basename(page)[:-len('.md')]}") for page in mine]
    return 0 if all(good) else 1


if __name__ == "__main__":
    if os.path.basename(sys.argv[0]) == "bazel":
        be_bazel(sys.argv[1:])
    sys.exit(main())
