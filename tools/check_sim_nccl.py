#!/usr/bin/env python3
"""Checks that what trains over ranks is tested on simulated NCCL too.

  tools/check_sim_nccl.py            prints what is wrong, and fails if anything is
  tools/check_sim_nccl.py --list     prints each test program with where it runs
  tools/check_sim_nccl.py DIR...     the same of other folders

Each file of tests (*_test.cc) below tests/parallel and tests/e2e is named by its
BUILD's sim_nccl_tests (tests/suites.bzl), by its own name or by that of its
program (tandem_tests): among `programs`, which run once more with that backend,
or `themselves`, which name it in their source or whose environment does, or, with
a reason, among `exceptions`.
"""

import ast
import collections
import os
import sys

FOLDERS = ["tests/parallel", "tests/e2e"]
MACRO = "sim_nccl_tests"


def arguments_of(call):
    """{name: value} of a call of the macro, whose first argument is `programs`."""
    named = {each.arg: each.value for each in call.keywords}
    if call.args:
        named["programs"] = call.args[0]
    return {name: ast.literal_eval(value) for name, value in named.items()}


def read_lists(tree):
    """{program: [where it runs, or why it does not]} of a BUILD file."""
    places = collections.defaultdict(list)
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != MACRO:
            continue
        lists = arguments_of(call)
        for program in lists.get("programs", []):
            places[program].append("on sim_nccl")
        for program in lists.get("themselves", []):
            places[program].append("by itself")
        for reason, programs in lists.get("exceptions", {}).items():
            for program in programs:
                places[program].append(f"not: {reason}")
    return places


def read_programs(tree):
    """{program: files without ".cc"} of the programs of several files."""
    found = {}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            named = {each.arg: each.value for each in call.keywords}
            if "units" in named:
                files = [file for unit in ast.literal_eval(named["units"]) for file in unit]
                found[named["name"].value] = [file[: -len(".cc")] for file in files]
    return found


def has_backend_by_environment(tree):
    """Targets of a BUILD file whose `env` has the backend."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            named = {each.arg: ast.dump(each.value) for each in call.keywords}
            if "'sim_nccl'" in named.get("env", ""):
                yield next(each.value.value for each in call.keywords if each.arg == "name")


def names_backend(folder, program):
    with open(os.path.join(folder, program + ".cc"), encoding="utf-8") as text:
        return "sim_nccl" in text.read()


def check_folder(folder, names):
    """(file or program, where it runs, what is wrong or None) of each."""
    build = os.path.join(folder, "BUILD")
    with open(build, encoding="utf-8") as text:
        tree = ast.parse(text.read(), build)
    places = read_lists(tree)
    by_environment = set(has_backend_by_environment(tree))
    for program, files in read_programs(tree).items():
        for file in files:
            places[file] += places.get(program, [])
            if program in by_environment:
                by_environment.add(file)
        places.pop(program, None)
    programs = {name[: -len(".cc")] for name in names if name.endswith("_test.cc")}
    for program in sorted(programs | set(places)):
        program_places = places.get(program, [])
        wrong = None
        if program not in programs:
            wrong = "there is no such test program"
        elif not program_places:
            wrong = f"is not named by {MACRO}: add it to its programs, or to its exceptions with a reason"
        elif len(program_places) > 1:
            wrong = "is named more than once: " + ", ".join(program_places)
        elif program_places == ["by itself"] and program not in by_environment and not names_backend(folder, program):
            wrong = "does not name sim_nccl, though it is said to run on it by itself"
        elif program_places == ["not: "]:
            wrong = "is an exception without a reason"
        yield program, "; ".join(program_places), wrong and f"{build}: {program} {wrong}"


def main(arguments):
    lists = "--list" in arguments
    counts = collections.Counter()
    errors = []
    for top in [each for each in arguments if each != "--list"] or FOLDERS:
        for folder, _, names in sorted(os.walk(top)):
            if "BUILD" not in names:
                continue
            for program, where, wrong in check_folder(folder, names):
                if wrong:
                    errors.append(wrong)
                counts["exceptions" if where.startswith("not: ") else where] += 1
                if lists:
                    print(f"{folder}/{program}: {where}")
    for error in errors:
        print(error)
    if not errors:
        print(", ".join(f"{count} {where}" for where, count in sorted(counts.items())))
    return 1 if errors else 0


if __name__ == "__main__":
    if not sys.argv[1:] or sys.argv[1:] == ["--list"]:
        os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    sys.exit(main(sys.argv[1:]))
