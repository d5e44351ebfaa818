#!/usr/bin/env python3
"""One rank of PyTorch's in a comparison of //tools:bench.

That starts it. Takes the flags and the commands of tandem's own ranks
(tools/bench/rank/server.h): reads a line from the FIFO that --commands names,
trains, answers with a line of JSON. In between it sleeps in read(). Rank = replica *
ranks of a replica + place in its pipeline; a replica of one rank trains the model in
one piece; alone, and told by a recipe how, on one device of any kind. With a recipe
"tensor" all ranks share each layer.
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
    parser.add_argument("--pipe", type=int, help="ranks of a replica; default: all")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--core", type=int, required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--allow_tf32", choices=["true", "false"], default="false")
    parser.add_argument("--model", required=True)
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], required=True)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--learning_rate", type=float, required=True)
    parser.add_argument("--inputs", required=True)
    parser.add_argument("--rendezvous", required=True)
    parser.add_argument("--commands", required=True)
    return parser.parse_args()


flags = parse_flags()
pipe = flags.pipe or flags.ranks
replicas = flags.ranks // pipe
replica, place = divmod(flags.rank, pipe)
if flags.core >= 0:  # before the import: threads that it starts are bound too
    os.sched_setaffinity(0, {flags.core})

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from averaging import averaging_named, make_groups  # noqa: E402
from common import kernels, peak_mib, read_inputs, reset_peak, timed  # noqa: E402
from models import make_model  # noqa: E402
from one_device import one_device_named  # noqa: E402
from pipeline import Pipeline, Place  # noqa: E402
from tensor import Tensor  # noqa: E402
from whole_model import WholeModel  # noqa: E402


class Task:
    """What is trained."""

    def __init__(self, state):
        self.state = state
        self.channels_last = False
        self.dtype = flags.dtype
        self.device = flags.device
        self.optimizer = flags.optimizer

    def make_model(self):
        model = make_model(flags.model, self.state)
        if self.channels_last:
            model = model.to(memory_format=torch.channels_last)
        return model

    def in_format(self, batches):
        if not self.channels_last:
            return batches
        return [
            (inputs.contiguous(memory_format=torch.channels_last), targets)
            for inputs, targets in batches
        ]

    @staticmethod
    def make_optimizer(parameters, **options):
        # No operator takes DTensors and others at once.
        whole, sharded = [], []
        for each in parameters:
            (sharded if hasattr(each, "to_local") else whole).append(each)
        groups = [{"params": each} for each in (whole, sharded) if each]
        if flags.optimizer == "adamw":
            return torch.optim.AdamW(
                groups, lr=flags.learning_rate, fused=True, **options
            )
        # The fused SGD of PyTorch 2.15 refuses DTensors; this is the next best.
        kind = {"foreach": True} if sharded else {"fused": True}
        return torch.optim.SGD(groups, lr=flags.learning_rate, momentum=0.9, **kind)


class Rank:
    def __init__(self):
        state, whole_batches = read_inputs(flags.inputs)
        self.task = Task(state)
        self.place = Place(pipe, place, make_groups(flags.ranks, pipe))
        # All ranks of a replica compute on the same batches.
        self.batches = [
            (inputs.chunk(replicas)[replica], targets.chunk(replicas)[replica])
            for inputs, targets in whole_batches
        ]
        self.recipe = "none"
        self.alone_model = None
        self.trainer = None
        self.task.channels_last = self.is_faster_in_channels_last()
        self.batches = self.task.in_format(self.batches)

    def is_faster_in_channels_last(self):
        """Of a model with convolutions on the CPU, as rank 0 times the whole of it."""
        if flags.device != "cpu" or not any(
            parameter.dim() == 4 for parameter in self.task.make_model().parameters()
        ):
            return False
        seconds = []
        for channels_last in (False, True):
            self.task.channels_last = channels_last
            batches = self.task.in_format(self.batches)
            model = WholeModel(self.task, batches, averaging_named("none", None, 1))
            model.step()
            seconds.append(min(timed(model.step, 1)["ms"] for _ in range(4)))
        faster = torch.tensor([seconds[1] < seconds[0]], dtype=torch.uint8)
        if flags.ranks > 1:
            dist.broadcast(faster, 0)
        reset_peak()  # what was tried is no part of the training
        return bool(faster)

    def averaging(self):
        return averaging_named(self.recipe, self.place.groups.data, replicas)

    def use(self, schedule, chunks, microbatches, cut, recipe="none"):
        self.trainer = None  # memory
        self.recipe = recipe
        if recipe.startswith("tensor"):
            sharing = Tensor(recipe.split("_"), flags.ranks)
            self.trainer = WholeModel(self.task, self.batches, sharing)
        elif flags.ranks == 1 and recipe != "none":
            self.trainer = one_device_named(recipe, self.task, self.batches)
        elif pipe == 1:
            self.trainer = WholeModel(
                self.task, self.batches, self.averaging(), int(microbatches)
            )
        else:
            self.trainer = Pipeline(
                self.task,
                self.batches,
                self.place,
                self.averaging(),
                schedule,
                int(chunks),
                int(microbatches),
                cut,
            )
        return {"cuts": self.trainer.cuts}

    def losses(self, count):
        losses = [float(self.trainer.step()) for _ in range(count)]
        used = kernels(flags.dtype, self.recipe, flags.device)
        if self.task.channels_last:
            used += "; images channels-last"
        return {"losses": losses, "kernels": used}

    def steps(self, count):
        self.trainer.step()
        return timed(self.trainer.step, count, flags.device)

    def alone(self, count):
        """Every rank trains the whole model, at the same time."""
        if self.alone_model is None:
            averaging = averaging_named("none", None, 1)
            self.alone_model = WholeModel(self.task, self.batches, averaging)
            self.alone_model.step()
        if flags.ranks > 1:
            dist.barrier()
        self.alone_model.step()
        return timed(self.alone_model.step, count)

    def communication(self, count):
        return self.trainer.averaging.communication(self.trainer.step, count)

    def memory(self, _):
        return {"peak_mib": peak_mib(flags.device)}

    def do(self, verb, *words):
        if verb == "use":
            return self.use(*words)
        commands = {
            "losses": self.losses,
            "steps": self.steps,
            "alone": self.alone,
            "communication": self.communication,
            "memory": self.memory,
        }
        return commands[verb](int(words[0]) if words else 1)


def serve():
    torch.set_num_threads(flags.threads)
    torch.backends.cuda.matmul.allow_tf32 = flags.allow_tf32 == "true"
    torch.backends.cudnn.allow_tf32 = flags.allow_tf32 == "true"
    if flags.ranks > 1:
        dist.init_process_group(
            "gloo",
            init_method="file://" + flags.rendezvous,
            rank=flags.rank,
            world_size=flags.ranks,
        )
    rank = Rank()
    with open(flags.commands) as commands:
        for line in commands:
            print(json.dumps(rank.do(*line.split())), flush=True)


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
