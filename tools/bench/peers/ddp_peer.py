#!/usr/bin/env python3
"""One rank of Python's DistributedDataParallel in tools/bench_ddp, which starts it.

Takes the flags and the commands of tandem's own ranks (tools/bench/bench_rank.h):
reads a line from the FIFO that --commands names, trains, answers with a line of
JSON. In between it sleeps in read().
"""

import argparse
import json
import os
import sys
import traceback


def parse_flags():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--core", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--optimizer", required=True)
    parser.add_argument("--learning_rate", type=float, required=True)
    parser.add_argument("--inputs", required=True)
    parser.add_argument("--rendezvous", required=True)
    parser.add_argument("--commands", required=True)
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


flags = parse_flags()
if flags.core >= 0:  # before the import: threads that it starts are bound too
    os.sched_setaffinity(0, {flags.core})

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from common import peak_mib, read_inputs, timed  # noqa: E402
from models import make_model  # noqa: E402


def make_optimizer(model):
    if flags.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=flags.learning_rate, fused=True)
    return torch.optim.SGD(
        model.parameters(), lr=flags.learning_rate, momentum=0.9, fused=True
    )


class Trainer:
    def __init__(self, model, batches):
        self.model = model
        self.optimizer = make_optimizer(model)
        if flags.compile:
            self.model = torch.compile(model)
        self.batches = batches
        self.next = 0

    def step(self):
        inputs, targets = self.batches[self.next % len(self.batches)]
        self.next += 1
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(inputs)
        loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten())
        loss.backward()
        self.optimizer.step()
        return loss

    def steps(self, count):
        self.step()
        return timed(self.step, count)


NS_PER_MS = 1e6


class Rank:
    def __init__(self):
        self.state, self.batches = read_inputs(flags.inputs, flags.rank)
        model = make_model(flags.model, self.state)
        parallel = DistributedDataParallel(
            model, gradient_as_bucket_view=True, static_graph=True
        )
        self.parallel = parallel
        self.trainer = Trainer(parallel, self.batches)
        self.local = None

    def overlap(self, count):
        """What DistributedDataParallel's own logger says, in milliseconds."""
        self.parallel._set_ddp_runtime_logging_sample_rate(1)
        comm = both = 0
        self.trainer.step()
        for _ in range(count):
            self.trainer.step()  # a step's times are known in the next
            data = self.parallel._get_ddp_logging_data()
            comm += data.get("backward_comm_time", 0)
            both += data.get("backward_compute_comm_overlap_time", 0)
        self.parallel._set_ddp_runtime_logging_sample_rate(100)
        return {
            "comm_ms": comm / count / NS_PER_MS,
            "exposed_ms": (comm - both) / count / NS_PER_MS,
        }

    def local_steps(self, count):
        if self.local is None:
            model = make_model(flags.model, self.state)
            self.local = Trainer(model, self.batches)
            self.local.steps(2)
        return self.local.steps(count)

    def do(self, verb, count=1):
        if verb == "losses":
            return {"losses": [self.trainer.step().item() for _ in range(count)]}
        if verb == "steps":
            return self.trainer.steps(count)
        if verb == "overlap":
            return self.overlap(count)
        if verb == "local":
            return self.local_steps(count)
        if verb == "memory":
            return {"peak_mib": peak_mib()}
        raise ValueError(f"unknown command {verb}")


def serve():
    torch.set_num_threads(flags.threads)
    dist.init_process_group(
        "gloo",
        init_method="file://" + flags.rendezvous,
        rank=flags.rank,
        world_size=flags.ranks,
    )
    rank = Rank()
    with open(flags.commands) as commands:
        for line in commands:
            verb, *numbers = line.split()
            answer = rank.do(verb, *map(int, numbers))
            print(json.dumps(answer), flush=True)


def main():
    try:
        serve()
    except Exception as error:  # the parent reports it, whatever it is
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Gloo's threads sometimes abort a process that ends the usual way.
    os._exit(code)
