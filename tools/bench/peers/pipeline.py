"""A rank's stages of a pipeline of torch.distributed.pipelining."""

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining

from averaging import Groups
from common import cross_entropy, precision
from models import layers_of

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


@dataclass
class Place:
    """Of one rank in its pipeline."""

    pipe: int  # ranks of it
    index: int
    groups: Groups

    def holds(self, schedule, stages, stage):
        if schedule in V_SHAPED:
            return min(stage, stages - 1 - stage) == self.index
        return stage % self.pipe == self.index


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


class UnderPrecision(nn.Module):
    """A stage whose forward runs in a dtype: backward then does, too."""

    def __init__(self, module, dtype):
        super().__init__()
        self.module = module
        self.dtype = dtype

    def forward(self, *inputs):
        with precision(self.dtype):
            return self.module(*inputs)


def boundaries(layers, begins, inputs, dtype):
    """What comes into each stage, and out of the last one: shape and dtype."""
    values = [inputs]
    with torch.no_grad(), precision(dtype):
        for i, layer in enumerate(layers):
            if i in begins[1:]:
                values.append(inputs)
            inputs = layer(inputs)
    return [value.to("meta") for value in values + [inputs]]


def uniform_cuts(layers, parts):
    """As tandem cuts: parts differ by one layer at most, the greater first."""
    each, more = divmod(layers, parts)
    return [part * each + min(part, more) for part in range(parts)]


def untie(layers):
    """Gives the last layer a parameter of its own instead of one that it shares with
    the first: returns both, or nothing. Stages then train them alike."""
    for name, last in layers[-1].named_parameters():
        if any(last is first for first in layers[0].parameters()):
            own = nn.Parameter(last.detach().clone())
            setattr(layers[-1], name, own)
            return last, own
    return ()


class Pipeline:
    """One setting of the pipeline, from the initial weights."""

    def __init__(
        self, task, batches, place, averaging, schedule, chunks, microbatches, cut
    ):
        self.averaging = averaging
        self.microbatches = microbatches
        self.batches = batches
        self.next = 0
        # Settings differ in BatchNorm's running statistics too: a new model.
        layers = layers_of(task.make_model())
        stages = place.pipe * chunks
        size = batches[0][0].shape[0] // microbatches
        if cut == "uniform":
            begins = uniform_cuts(len(layers), stages)
        else:
            with precision(task.dtype):
                seconds = seconds_of_layers(layers, batches[0][0][:size])
            begins = [cuts_by_time(seconds, stages)]
            dist.broadcast_object_list(begins)  # of rank 0, on all replicas
            begins = begins[0]
            # Timing has moved the running statistics.
            layers = layers_of(task.make_model())
        self.cuts = begins[1:]
        ends = begins[1:] + [len(layers)]
        tied = untie(layers)
        mine = [s for s in range(stages) if place.holds(schedule, stages, s)]
        self.is_first = 0 in mine
        self.is_last = stages - 1 in mine
        modules = [nn.Sequential(*layers[begins[s] : ends[s]]) for s in mine]
        at = [{} for _ in mine]
        if task.dtype != "fp32":
            # Tracing shapes, as pipelining does by itself, knows no autocast.
            meta = boundaries(
                layers_of(task.make_model()), begins, batches[0][0][:size], task.dtype
            )
            at = [{"input_args": (meta[s],), "output_args": (meta[s + 1],)} for s in mine]
            modules = [UnderPrecision(module, task.dtype) for module in modules]
        made = [
            pipelining.PipelineStage(
                # DistributedDataParallel of PyTorch 2.15 under a schedule of
                # several microbatches: with static_graph it sums gradients wrongly
                # in every step, and without it ends with an internal assertion
                # where it rebuilds its buckets in the second. Where it looks for
                # unused parameters it rebuilds none, and is right.
                averaging.wrap(module, find_unused_parameters=True),
                s,
                stages,
                torch.device("cpu"),
                group=place.groups.pipe,
                **known,
            )
            for module, s, known in zip(modules, mine, at)
        ]
        # Scaling the loss saves the pass that scales the gradients.
        self.schedule = SCHEDULES[schedule](
            made[0] if schedule in ONE_STAGE_A_RANK else made,
            microbatches,
            loss_fn=lambda logits, targets: cross_entropy(logits.float(), targets)
            * (averaging.loss_scale / microbatches),
            scale_grads=False,
        )
        self.tied = [tied[0]] if tied and self.is_first else []
        self.tied += [tied[1]] if tied and self.is_last else []
        self.ends = place.groups.ends
        parameters = [p for module in modules for p in module.parameters()]
        self.optimizer = task.make_optimizer(parameters)
        averaging.prepare(parameters)

    def share_tied_gradients(self):
        """As Megatron does where the first stage's embedding is the last one's head."""
        if len(self.tied) == 2:  # both stages are here
            first, last = self.tied
            first.grad += last.grad
            last.grad.copy_(first.grad)
        elif self.tied:
            dist.all_reduce(self.tied[0].grad, group=self.ends)

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
        self.share_tied_gradients()
        self.optimizer.step()
        return sum(loss.item() for loss in losses) * self.averaging.share
