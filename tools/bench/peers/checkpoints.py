#!/usr/bin/env python3
"""torch.distributed.checkpoint in the suite checkpoint of //tools:bench, which starts it.

Reads a line from the FIFO that --commands names, a JSON list of a command and its arguments, and answers with a line of
JSON. One rank, one thread: as good as it gets without processes of its own.
"""

import hashlib
import os
import shutil
import time
import warnings

from commands import answer, parse_flags

flags = parse_flags()
warnings.simplefilter("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402

torch.set_num_threads(1)


class Peer:
    def __init__(self):
        # Asynchronous saves ask for a group.
        dist.init_process_group("gloo", init_method=f"file://{flags.rendezvous}", rank=0, world_size=1)

    def make(self, tensors, numbers, folder):
        self.state = {
            f"layers.{i}.weight": torch.arange(i, i + numbers, dtype=torch.float32) for i in range(tensors)
        }
        self.folder = os.path.join(folder, "theirs")
        # Kept from one save to the next, as the copy's memory is here. The
        # writer's own would be pinned, for which it wants a GPU.
        self.stager = dcp.FileSystemWriter(self.folder + ".stalls", cache_staged_state_dict=True)
        self.stager.state_dict_cache = {name: torch.empty_like(tensor) for name, tensor in self.state.items()}
        return {}

    def timed(self, work):
        start = time.perf_counter()
        work()
        return {"ms": 1e3 * (time.perf_counter() - start)}

    def save(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        return self.timed(lambda: dcp.save(self.state, checkpoint_id=self.folder))

    def load(self):
        return self.timed(lambda: dcp.load(self.state, checkpoint_id=self.folder))

    def digest(self):
        for tensor in self.state.values():
            tensor.zero_()
        dcp.load(self.state, checkpoint_id=self.folder)
        digest = hashlib.sha256()
        for tensor in self.state.values():
            digest.update(tensor.numpy().tobytes())
        return {"sha256": digest.hexdigest()}

    def stall(self):
        start = time.perf_counter()
        saved = dcp.async_save(self.state, storage_writer=self.stager)
        ms = 1e3 * (time.perf_counter() - start)
        saved.result()
        return {"ms": ms}


if __name__ == "__main__":
    answer(Peer(), flags.commands)
