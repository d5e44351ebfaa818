#!/usr/bin/env python3
"""Keeps Bazel's disk cache from growing for ever: removes what was used longest ago.

  tools/prune_cache.py FOLDER GIB

Prints what FOLDER, a --disk_cache, holds, and removes files until it holds at
most GIB (2^30 bytes), those first that were neither written nor read for
longest. Bazel makes again what it does not find. A folder that is not there is
an empty cache; one with anything but a disk cache in it is refused.
"""

import os
import sys

# What Bazel keeps there: results of actions, files by their hashes.
PARTS = ("ac", "cas")
GIB = 1 << 30


def files_of(folder):
    """(last use, bytes, path) of each file."""
    for part in PARTS:
        for place, _, names in os.walk(os.path.join(folder, part)):
            for name in names:
                path = os.path.join(place, name)
                try:
                    status = os.stat(path)
                except FileNotFoundError:
                    # A build beside this one renames what it has written.
                    continue
                yield max(status.st_atime, status.st_mtime), status.st_size, path


def prune(folder, limit):
    """Removes files until `folder` holds at most `limit` bytes; returns (files, bytes) that stay, and that went."""
    files = sorted(files_of(folder))
    count, size = len(files), sum(each[1] for each in files)
    gone_count = gone_size = 0
    for _, its_size, path in files:
        if size - gone_size <= limit:
            break
        try:
            os.remove(path)
        except FileNotFoundError:
            pass
        gone_count += 1
        gone_size += its_size
    return (count - gone_count, size - gone_size), (gone_count, gone_size)


def main(arguments):
    try:
        folder, limit = arguments[0], float(arguments[1])
    except (IndexError, ValueError):
        sys.exit(__doc__)
    if os.path.isdir(folder) and not set(os.listdir(folder)) <= set(PARTS):
        sys.exit(f"prune_cache: {folder} is not a disk cache of Bazel's: expected only {' and '.join(PARTS)} in it")
    (count, size), (gone_count, gone_size) = prune(folder, limit * GIB)
    removed = f"removed {gone_count} files, {gone_size / GIB:.1f} GiB" if gone_count else "removed nothing"
    print(f"disk cache {folder}: {size / GIB:.1f} GiB in {count} files (at most {limit:g} GiB; {removed})")


if __name__ == "__main__":
    main(sys.argv[1:])
