#!/usr/bin/env python3
"""One rank of torch.distributed.pipelining in tools/bench_pipeline or bench_hybrid.

They start it. Takes the flags and the commands of tandem's own side
(tools/bench/pipeline_server.h): reads a line from the FIFO that --commands names,
trains, answers with a line of JSON. In between it sleeps in read(). Rank = replica *
ranks of a replica + place in its pipeline; a replica of one rank trains the model in
one piece.
"""

import argparse
import json
import os
import sys
import time
import traceback


def parse_flags():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--pipe", type=int, help="ranks of a replica; default: all")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--core", type=int, required=True)
    parser.add_argument("--model", required=True)
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
from torch import nn  # noqa: E402
from torch.distributed import pipelining  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from averaging import averaging_named, make_groups  # noqa: E402
from common import peak_mib, read_inputs, timed  # noqa: E402
from models import layers_of, make_model  # noqa: E402

SCHEDULES = {
    "gpipe": pipelining.ScheduleGPipe,
    "1f1b": pipelining.Schedule1F1B,
    "looped_bfs": pipelining.ScheduleLoopedBFS,
    "interleaved_1f1b": pipelining.ScheduleInterleaved1F1B,
    "zero_bubble": pipelining.ScheduleInterleavedZeroBubble,
    "zbv": pipelining.ScheduleZBVZeroBubble,
    "dual_pipe_v": pipelining.ScheduleDualPipeV,
}
ONE_STAGE_A_RANK = ("gpipe", "1f1b")
V_SHAPED = ("zbv", "dual_pipe_v")


def make_optimizer(parameters):
    return torch.optim.SGD(
        parameters, lr=flags.learning_rate, momentum=0.9, fused=True
    )


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


class WholeModel:
    """Trains the model in one piece."""

    def __init__(self, state, batches, averaging, microbatches=1):
        model = make_model(flags.model, state)
        self.averaging = averaging
        self.model = averaging.wrap(model, static_graph=microbatches == 1)
        self.optimizer = make_optimizer(model.parameters())
        averaging.prepare(model.parameters())
        self.batches = [
            list(zip(inputs.chunk(microbatches), targets.chunk(microbatches)))
            for inputs, targets in batches
        ]
        self.scale = averaging.loss_scale / microbatches
        self.cuts = []
        self.next = 0

    def backward(self, inputs, targets):
        loss = cross_entropy(self.model(inputs), targets)
        if self.scale != 1:
            loss = loss * self.scale
        loss.backward()
        return loss

    def step(self):
        parts = self.batches[self.next % len(self.batches)]
        self.next += 1
        self.averaging.zero_grad(self.optimizer)
        losses = []
        with self.averaging.no_sync(self.model):
            losses = [self.backward(*part) for part in parts[:-1]]
        losses.append(self.backward(*parts[-1]))
        self.averaging.finish()
        self.optimizer.step()
        return sum(loss.item() for loss in losses) * self.averaging.share


def seconds_of_layers(layers, inputs):
    """What each layer takes, forward and backward: the least of some tries."""
    seconds = [float("inf")] * len(layers)
    for _ in range(4):
        values = inputs
        for i, layer in enumerate(layers):
            values = values.detach()
            if values.is_floating_point():
                values.requires_grad_()
            start = time.perf_counter()
            # A layer may work in place, which a leaf does not allow.
            output = layer(values * 1 if values.requires_grad else values)
            if output.requires_grad:
                output.backward(torch.ones_like(output))
            seconds[i] = min(seconds[i], time.perf_counter() - start)
            values = output
    for layer in layers:
        layer.zero_grad(set_to_none=True)
    return seconds


def cuts_by_time(seconds, parts):
    """Where parts begin, the slowest of which is as fast as can be."""
    best = {(0, 0): (0.0, [])}
    for part in range(1, parts + 1):
        for end in range(part, len(seconds) + 1):
            best[part, end] = min(
                (max(best[part - 1, begin][0], sum(seconds[begin:end])),
                 best[part - 1, begin][1] + [begin])
                for begin in range(part - 1, end)
                if (part - 1, begin) in best
            )
    return best[parts, len(seconds)][1]


def uniform_cuts(layers, parts):
    """As tandem cuts: parts differ by one layer at most, the greater first."""
    each, more = divmod(layers, parts)
    return [part * each + min(part, more) for part in range(parts)]


class Pipeline:
    """One setting of the pipeline, from the initial weights."""

    def __init__(
        self, state, batches, groups, averaging, schedule, chunks, microbatches, cut
    ):
        self.averaging = averaging
        self.microbatches = microbatches
        self.batches = batches
        self.next = 0
        # Settings differ in BatchNorm's running statistics too: a new model.
        layers = layers_of(make_model(flags.model, state))
        stages = pipe * chunks
        size = batches[0][0].shape[0] // microbatches
        if cut == "uniform":
            begins = uniform_cuts(len(layers), stages)
        else:
            seconds = seconds_of_layers(layers, batches[0][0][:size])
            begins = [cuts_by_time(seconds, stages)]
            dist.broadcast_object_list(begins)  # of rank 0, on all replicas
            begins = begins[0]
            # Timing has moved the running statistics.
            layers = layers_of(make_model(flags.model, state))
        self.cuts = begins[1:]
        ends = begins[1:] + [len(layers)]
        mine = [s for s in range(stages) if self.place_of(schedule, stages, s) == place]
        self.is_first = 0 in mine
        self.is_last = stages - 1 in mine
        modules = [nn.Sequential(*layers[begins[s] : ends[s]]) for s in mine]
        made = [
            pipelining.PipelineStage(
                averaging.wrap(module), s, stages, torch.device("cpu"), group=groups.pipe
            )
            for module, s in zip(modules, mine)
        ]
        # Scaling the loss saves the pass that scales the gradients.
        self.schedule = SCHEDULES[schedule](
            made[0] if schedule in ONE_STAGE_A_RANK else made,
            microbatches,
            loss_fn=lambda logits, targets: cross_entropy(logits, targets)
            * (averaging.loss_scale / microbatches),
            scale_grads=False,
        )
        parameters = [p for module in modules for p in module.parameters()]
        self.optimizer = make_optimizer(parameters)
        averaging.prepare(parameters)

    @staticmethod
    def place_of(schedule, stages, stage):
        if schedule in V_SHAPED:
            return min(stage, stages - 1 - stage)
        return stage % pipe

    def step(self):
        inputs, targets = self.batches[self.next % len(self.batches)]
        self.next += 1
        self.averaging.zero_grad(self.optimizer)
        losses = []
        self.schedule.step(
            *([inputs] if self.is_first else []),
            target=targets if self.is_last else None,
            losses=losses if self.is_last else None,
            return_outputs=False,
        )
        self.averaging.finish()
        self.optimizer.step()
        return sum(loss.item() for loss in losses) * self.averaging.share


class Rank:
    def __init__(self):
        self.groups = make_groups(flags.ranks, pipe)
        # All ranks of a replica compute on the same batches.
        self.state, self.whole_batches = read_inputs(flags.inputs, 0)
        self.batches = [
            (inputs.chunk(replicas)[replica], targets.chunk(replicas)[replica])
            for inputs, targets in self.whole_batches
        ]
        self.whole = None
        self.trainer = None

    def use(self, schedule, chunks, microbatches, cut, recipe="none"):
        self.trainer = None  # memory
        averaging = averaging_named(recipe, self.groups.data, replicas)
        if pipe == 1:
            self.trainer = WholeModel(
                self.state, self.batches, averaging, int(microbatches)
            )
        else:
            self.trainer = Pipeline(
                self.state,
                self.batches,
                self.groups,
                averaging,
                schedule,
                int(chunks),
                int(microbatches),
                cut,
            )
        return {"cuts": self.trainer.cuts}

    def alone(self, count):
        """Every rank trains the whole model, at the same time."""
        if self.whole is None:
            self.whole = WholeModel(
                self.state, self.whole_batches, averaging_named("none", None, 1)
            )
            self.whole.step()
        if flags.ranks > 1:
            dist.barrier()
        self.whole.step()
        return timed(self.whole.step, count)

    def steps(self, count):
        self.trainer.step()
        return timed(self.trainer.step, count)

    def do(self, verb, *words):
        if verb == "use":
            return self.use(*words)
        if verb == "losses":
            return {"losses": [self.trainer.step() for _ in range(int(words[0]))]}
        if verb == "steps":
            return self.steps(int(words[0]))
        if verb == "alone":
            return self.alone(int(words[0]))
        if verb == "memory":
            return {"peak_mib": peak_mib()}
        raise ValueError(f"unknown command {verb}")


def serve():
    torch.set_num_threads(flags.threads)
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
