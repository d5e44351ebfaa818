#!/usr/bin/env python3
"""Writes distributed_sampler_table.json: what PyTorch's DistributedSampler says.

Needs the Python package torch 2.15.0. Run it beside the table:

    python3 make_distributed_sampler_table.py > distributed_sampler_table.json

A case holds, for each rank, all indices (small lengths), or their count, their
CRC-32 as little-endian int64 and the first and last few (large lengths).
"""

import json
import struct
import zlib

from torch.utils.data import DistributedSampler

SMALL_LENGTHS = [0, 1, 2, 3, 5, 7, 10, 13, 16, 31]
SMALL_REPLICAS = [1, 2, 3, 4, 7, 16]
# (seed, epoch): only the low 32 bits of the sum matter.
SMALL_SEEDS = [(0, 0), (0, 1), (42, 3), (2**32 - 1, 1), (2**40 + 5, 2), (-7, 2)]
LARGE_LENGTHS = [1009, 10000, 50000, 60000, 1281167]
LARGE_REPLICAS = [1, 2, 7, 8, 1000]
LARGE_SEEDS = [(0, 0), (42, 17)]
ENDS = 3


def sample(length, replicas, rank, shuffle, drop_last, seed, epoch):
    sampler = DistributedSampler(
        range(length), num_replicas=replicas, rank=rank, shuffle=shuffle,
        seed=seed, drop_last=drop_last)
    sampler.set_epoch(epoch)
    return list(sampler)


def digest(indices):
    return {
        "count": len(indices),
        "crc32": zlib.crc32(struct.pack(f"<{len(indices)}q", *indices)),
        "first": indices[:ENDS],
        "last": indices[-ENDS:],
    }


def cases(lengths, replica_counts, seeds):
    for length in lengths:
        for replicas in replica_counts:
            for drop_last in (False, True):
                yield length, replicas, drop_last, False, *seeds[0]
                for seed, epoch in seeds:
                    yield length, replicas, drop_last, True, seed, epoch


def case(length, replicas, drop_last, shuffle, seed, epoch, ranks):
    return {
        "length": length, "num_replicas": replicas, "drop_last": drop_last,
        "shuffle": shuffle, "seed": seed, "epoch": epoch,
        "ranks": {
            str(rank): sample(length, replicas, rank, shuffle, drop_last, seed,
                              epoch)
            for rank in ranks
        },
    }


def small_cases():
    for arguments in cases(SMALL_LENGTHS, SMALL_REPLICAS, SMALL_SEEDS):
        yield case(*arguments, ranks=range(arguments[1]))


def large_cases():
    for arguments in cases(LARGE_LENGTHS, LARGE_REPLICAS, LARGE_SEEDS):
        replicas = arguments[1]
        ranks = sorted({0, replicas // 2, replicas - 1})
        result = case(*arguments, ranks=ranks)
        result["ranks"] = {
            rank: digest(indices) for rank, indices in result["ranks"].items()
        }
        yield result


def main():
    lines = [
        json.dumps(entry, separators=(",", ":"))
        for entry in [*small_cases(), *large_cases()]
    ]
    print("[\n" + ",\n".join(lines) + "\n]")


if __name__ == "__main__":
    main()
