#!/usr/bin/env python3
"""Checks what the includes between folders must be.

  tools/check_rooms.py            prints what is wrong, and fails if anything is
  tools/check_rooms.py --list     prints each room with the rooms it includes
  tools/check_rooms.py DIR        the same of the floors in another folder

Floors include one way: core <- datasets, models, parallel <- tools. Rooms, the
folders within a floor, include each other without a circle; docs/architecture.md
says what they hold. Tests are left out: they include what they test.
"""

import collections
import os
import re
import sys

# Which floors the files of a floor may include.
FLOORS = {
    "core": ["core"],
    "datasets": ["core", "datasets"],
    "models": ["core", "models"],
    "parallel": ["core", "parallel"],
    "tools": ["core", "datasets", "models", "parallel", "tools"],
}
INCLUDE = re.compile(r'^#include "((?:%s)/[^"]*)"' % "|".join(FLOORS), re.M)


def source_files():
    for floor in FLOORS:
        for room, _, names in os.walk(floor):
            for name in sorted(names):
                if name.endswith((".h", ".cc")):
                    yield room, os.path.join(room, name)


def read_rooms():
    """{room: {room that it includes: an example, "file includes file"}}."""
    rooms = collections.defaultdict(dict)
    for room, file in source_files():
        with open(file, encoding="utf-8") as text:
            for included in INCLUDE.findall(text.read()):
                other = os.path.dirname(included)
                # What is no folder here is Bazel's (tools/cpp/runfiles).
                if os.path.isdir(other):
                    rooms[room].setdefault(other, f"{file} includes {included}")
    return rooms


def against_the_floors(rooms):
    for room, others in sorted(rooms.items()):
        for other, example in sorted(others.items()):
            if other.split("/")[0] not in FLOORS[room.split("/")[0]]:
                yield f"{room} may not include {other}: {example}"


def circles(rooms):
    """A line for each arrow that closes a circle."""
    done = set()
    path = []

    def visit(room):
        if room in path:
            circle = path[path.index(room):] + [room]
            arrows = zip(circle, circle[1:])
            yield "a circle: " + "; ".join(rooms[a][b] for a, b in arrows)
            return
        if room in done:
            return
        path.append(room)
        for other in sorted(rooms[room]):
            if other != room:
                yield from visit(other)
        path.pop()
        done.add(room)

    for room in sorted(rooms):
        yield from visit(room)


def main():
    args = sys.argv[1:]
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    os.chdir(args[0] if args and args != ["--list"] else here)
    rooms = read_rooms()
    if args == ["--list"]:
        for room, others in sorted(rooms.items()):
            print(f"{room}: {', '.join(sorted(set(others) - {room}))}")
        return 0
    wrong = list(against_the_floors(rooms)) + list(circles(rooms))
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
