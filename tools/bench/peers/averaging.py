"""How replicas in PyTorch average their gradients: recipes to choose from."""

import contextlib
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from models import layers_of


@dataclass
class Groups:
    pipe: object = None  # this rank's pipeline; None: all ranks
    data: object = None  # the same place in all pipelines
    ends: object = None  # the first and the last rank of this rank's pipeline


def make_groups(ranks, pipe):
    """Rank = replica * pipe + place."""
    replicas = ranks // pipe
    groups = Groups()
    if pipe > 1:
        for replica in range(replicas):
            members = [replica * pipe, (replica + 1) * pipe - 1]
            made = dist.new_group(members)
            if dist.get_rank() in members:
                groups.ends = made
    if replicas == 1:
        return groups
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

    def loss_context(self):
        """What a loss is computed in, forward and backward."""
        return contextlib.nullcontext()

    def finish(self):
        pass


NS_PER_MS = 1e6


class Ddp(Averaging):
    """DistributedDataParallel around each stage. PipelineStage calls no_sync for all
    microbatches but the last; who trains in one piece does so by hand."""

    syncs_buffers = False

    def __init__(self, group, replicas):
        self.group = group
        self.share = 1 / replicas
        self.parallel = None  # the last that was wrapped

    def wrap(self, module, static_graph=False, find_unused_parameters=False):
        if not any(True for _ in module.parameters()):
            return module
        self.parallel = DistributedDataParallel(
            module,
            process_group=self.group,
            gradient_as_bucket_view=True,
            static_graph=static_graph,
            find_unused_parameters=find_unused_parameters,
            forward_sync_buffers=self.syncs_buffers,
        )
        return self.parallel

    def no_sync(self, module):
        return module.no_sync()

    def communication(self, step, count):
        """What DistributedDataParallel's own logger says, in milliseconds."""
        self.parallel._set_ddp_runtime_logging_sample_rate(1)
        comm = both = 0
        step()
        for _ in range(count):
            step()  # a step's times are known in the next
            data = self.parallel._get_ddp_logging_data()
            comm += data.get("backward_comm_time", 0)
            both += data.get("backward_compute_comm_overlap_time", 0)
        self.parallel._set_ddp_runtime_logging_sample_rate(100)
        return {
            "comm_ms": comm / count / NS_PER_MS,
            "exposed_ms": (comm - both) / count / NS_PER_MS,
        }


class Eager(Ddp):
    """The same with its usual broadcasts, as tandem has them in the suite ddp."""

    syncs_buffers = True


class Compile(Eager):
    def wrap(self, module, **options):
        return torch.compile(super().wrap(module, **options))


class Compiled(Averaging):
    """One replica, whose stages are compiled."""

    def wrap(self, module, **_):
        return torch.compile(module)


class CompiledDdp(Ddp):
    """DistributedDataParallel outside, as PipelineStage must see it to call no_sync."""

    def wrap(self, module, **options):
        return super().wrap(torch.compile(module), **options)


class Fsdp(Averaging):
    """FSDP2: layers and blocks are sharded one by one, the rest together; each is
    gathered ahead of its use, and freed after forward, as fully_shard has it."""

    def __init__(self, group, replicas):
        self.mesh = dist.device_mesh.init_device_mesh("cpu", (replicas,))
        self.share = 1 / replicas

    def wrap(self, module, **_):
        for layer in layers_of(module):
            if any(True for _ in layer.parameters()) and not is_shared(layer, module):
                fully_shard(layer, mesh=self.mesh)
        return fully_shard(module, mesh=self.mesh)


def is_shared(layer, module):
    """Whether another layer has one of its parameters, too."""
    others = [
        parameter
        for each in layers_of(module)
        if each is not layer
        for parameter in each.parameters()
    ]
    return any(one is other for one in layer.parameters() for other in others)


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
    if name == "compiled":
        return Compiled() if replicas == 1 else CompiledDdp(group, replicas)
    recipes = {
        "ddp": Ddp,
        "flat": Flat,
        "eager": Eager,
        "compile": Compile,
        "fsdp": Fsdp,
    }
    return recipes[name](group, replicas)
