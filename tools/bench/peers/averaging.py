"""How replicas in PyTorch average their gradients: recipes to choose from."""

import contextlib
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


@dataclass
class Groups:
    pipe: object = None  # this rank's pipeline; None: all ranks
    data: object = None  # the same place in all pipelines


def make_groups(ranks, pipe):
    """Rank = replica * pipe + place."""
    replicas = ranks // pipe
    if replicas == 1:
        return Groups()
    groups = Groups()
    # Every rank makes all of them, in the same order.
    for replica in range(replicas):
        members = list(range(replica * pipe, (replica + 1) * pipe))
        made = dist.new_group(members)
        if dist.get_rank() in members:
            groups.pipe = made
    for place in range(pipe):
        members = list(range(place, ranks, pipe))
        made = dist.new_group(members)
        if dist.get_rank() in members:
            groups.data = made
    return groups


class Averaging:
    """None: there is one replica."""

    loss_scale = 1.0  # by which each replica's loss is multiplied for backward
    share = 1.0  # which a replica's scaled loss has in the whole batch's

    def wrap(self, module, **_):
        return module

    def prepare(self, parameters):
        pass

    def zero_grad(self, optimizer):
        optimizer.zero_grad(set_to_none=True)

    def no_sync(self, module):
        return contextlib.nullcontext()

    def finish(self):
        pass


class Ddp(Averaging):
    """DistributedDataParallel around each stage. PipelineStage calls no_sync for all
    microbatches but the last; who trains in one piece does so by hand."""

    def __init__(self, group, replicas):
        self.group = group
        self.share = 1 / replicas

    def wrap(self, module, static_graph=False):
        if not any(True for _ in module.parameters()):
            return module
        return DistributedDataParallel(
            module,
            process_group=self.group,
            gradient_as_bucket_view=True,
            static_graph=static_graph,
            broadcast_buffers=False,
        )

    def no_sync(self, module):
        return module.no_sync()


class Flat(Averaging):
    """By hand: gradients lie in one buffer, which is summed after the last backward."""

    def __init__(self, group, replicas):
        self.group = group
        self.loss_scale = 1 / replicas

    def prepare(self, parameters):
        parameters = list(parameters)
        self.flat = torch.zeros(sum(p.numel() for p in parameters))
        for parameter, part in zip(
            parameters, self.flat.split([p.numel() for p in parameters])
        ):
            parameter.grad = part.view_as(parameter)

    def zero_grad(self, optimizer):
        self.flat.zero_()

    def finish(self):
        dist.all_reduce(self.flat, group=self.group)


def averaging_named(name, group, replicas):
    if name == "none":
        return Averaging()
    return {"ddp": Ddp, "flat": Flat}[name](group, replicas)
