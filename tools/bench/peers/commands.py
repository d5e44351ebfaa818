"""How the suites tokenizer and checkpoint talk to a peer of one rank."""

import argparse
import json
import os
import traceback


def parse_flags(*more):
    """What the program appends to a peer's command line, and texts of these names.

    To be called before further imports: threads that they start are bound, too.
    """
    parser = argparse.ArgumentParser()
    for name in ("rank", "ranks", "core"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("rendezvous", "commands", *more):
        parser.add_argument(f"--{name}", required=True)
    flags = parser.parse_args()
    if flags.core >= 0:
        os.sched_setaffinity(0, {flags.core})
    return flags


def answer(peer, path):
    """Each line of the FIFO is a command, a method of the peer, and its arguments; each answer a line of JSON."""
    with open(path, encoding="utf-8") as commands:
        for line in commands:
            command, *arguments = json.loads(line)
            try:
                said = getattr(peer, command)(*arguments)
            except Exception:  # whatever it is, tandem's side reports it
                said = {"error": traceback.format_exc().strip().splitlines()[-1]}
            print(json.dumps(said), flush=True)
