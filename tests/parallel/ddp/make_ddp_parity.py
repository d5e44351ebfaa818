#!/usr/bin/env python3
"""Writes what Python's DistributedDataParallel makes of a few small jobs:

    testdata/ddp_parity_mlp.safetensors   an MLP, many options, 2, 3 and 4 ranks
    testdata/ddp_parity_resnet.json       ResNet-18, 2 ranks

Needs torch 2.15.0 and torchvision 0.29.2. By hand:

    python3 make_ddp_parity.py testdata

Every rank is a process with one thread; they talk through Gloo on loopback.
Weights and batches are not stored: both sides compute them by the formula of
tests/models/formula_values.h. The optimizers are the fused ones, whose kernels
tandem uses too, so that what differs is the data parallelism alone.

The C++ side: ddp_parity_cases.h names the same cases.
"""

import contextlib
import hashlib
import json
import math
import multiprocessing
import os
import struct
import sys
import tempfile

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

sys.path.append(os.path.join(os.path.dirname(__file__), "../models"))
from formula_values import fill, formula

STEPS = 5
BATCH = 4  # of one rank, one microbatch
INPUTS, WIDTH, CLASSES = 7, 9, 5


class Mlp(nn.Module):
    """The branch is used where the caller says so, fc2 `times` times."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(INPUTS, WIDTH)
        self.fc2 = nn.Linear(WIDTH, WIDTH)
        self.branch = nn.Linear(WIDTH, WIDTH)
        self.fc3 = nn.Linear(WIDTH, CLASSES)

    def forward(self, x, use_branch=True, times=1):
        x = self.fc1(x).tanh()
        for _ in range(times):
            x = self.fc2(x).tanh()
        if use_branch:
            x = x + self.branch(x)
        return self.fc3(x)


def batch(step, rank, microbatch):
    name = f"batch.{step}.{rank}.{microbatch}"
    targets = (torch.arange(BATCH) * 3 + step + 2 * rank + microbatch) % CLASSES
    return formula(name, (BATCH, INPUTS)), targets


def branch_used(step, rank):
    """On rank 1, nowhere, everywhere, on rank 0, nowhere."""
    return [rank == 1, False, True, rank == 0, False][step]


def sgd(parameters):
    return torch.optim.SGD(
        parameters, lr=0.1, momentum=0.9, weight_decay=0.01, fused=True
    )


def adamw(parameters):
    return torch.optim.AdamW(
        parameters, lr=0.1, betas=(0.9, 0.99), eps=1e-3, weight_decay=0.1, fused=True
    )


class Case:
    def __init__(
        self,
        options=None,
        optimizer=sgd,
        microbatches=1,
        clip=lambda parameters: None,
        hook=None,
        unused=False,
        times=1,
        frozen=(),
        ignored=(),
    ):
        self.options = options or {}
        self.optimizer = optimizer
        self.microbatches = microbatches
        self.clip = clip
        self.hook = hook
        self.unused = unused
        self.times = times
        self.frozen = frozen
        self.ignored = ignored

    def microbatches_of(self, step):
        # PyTorch breaks an assertion of its own where the very first backward
        # of a static graph is in no_sync.
        first_of_static = step == 0 and "static_graph" in self.options
        return 1 if first_of_static else self.microbatches


def power_sgd(rank, **options):
    """The Qs that it begins with are the formula's, not random."""
    start = 2

    def fill_qs(state, bucket, names):
        ps, qs = {}, {}
        for tensor, parameter in zip(bucket.gradients(), bucket.parameters()):
            matrix = tensor.view(tensor.shape[0], -1)
            n, m = matrix.shape
            columns = min(n, m, rank)
            if columns * (n + m) * state.min_compression_rate < n * m:
                # The hook takes them in this order.
                q = formula(names[parameter] + ".q", (m, columns))
                ps.setdefault(matrix.shape, []).append(torch.empty(n * columns))
                qs.setdefault(matrix.shape, []).append(q.flatten())
        index = bucket.index()
        state.p_memory_dict[index] = torch.cat([p for x in ps.values() for p in x])
        state.q_memory_dict[index] = torch.cat([q for x in qs.values() for q in x])

    def register(ddp):
        names = {parameter: name for name, parameter in ddp.module.named_parameters()}
        state = powerSGD_hook.PowerSGDState(
            process_group=None,
            matrix_approximation_rank=rank,
            start_powerSGD_iter=start,
            orthogonalization_epsilon=1e-8,
            **options,
        )

        def hook(state, bucket):
            if state.iter == start and state.warm_start and not state.q_memory_dict:
                fill_qs(state, bucket, names)
            return powerSGD_hook.powerSGD_hook(state, bucket)

        ddp.register_comm_hook(state, hook)

    return register


def plain_hook(hook):
    return lambda ddp: ddp.register_comm_hook(None, hook)


def clip_norm(parameters):
    nn.utils.clip_grad_norm_(parameters, 0.05)


def clip_value(parameters):
    nn.utils.clip_grad_value_(parameters, 0.01)


UNUSED = {"find_unused_parameters": True}
STATIC = {"static_graph": True}
CASES = {
    "plain": Case(),
    "gradient_as_bucket_view": Case({"gradient_as_bucket_view": True}),
    "small_buckets": Case({"bucket_cap_mb": 0.0003}),
    "adamw": Case(optimizer=adamw),
    "accumulation": Case(microbatches=3),
    "accumulation_static_graph": Case(STATIC, microbatches=3),
    "clip_norm": Case(clip=clip_norm),
    "clip_value": Case(clip=clip_value),
    "unused": Case(UNUSED, unused=True),
    "unused_adamw": Case(UNUSED, unused=True, optimizer=adamw),
    "unused_accumulation": Case(UNUSED, unused=True, microbatches=3),
    "static_graph": Case(STATIC),
    "shared": Case(times=2),
    "frozen": Case(frozen=("fc2.weight", "fc1.bias")),
    "ignored": Case(ignored=("fc2.weight", "fc1.bias")),
    "allreduce_hook": Case(hook=plain_hook(default_hooks.allreduce_hook)),
    "fp16_hook": Case(hook=plain_hook(default_hooks.fp16_compress_hook)),
    "bf16_hook": Case(hook=plain_hook(default_hooks.bf16_compress_hook)),
    "power_sgd": Case(hook=power_sgd(1, min_compression_rate=1)),
    "power_sgd_rank_2": Case(hook=power_sgd(2, min_compression_rate=0.5)),
    "power_sgd_without_feedback": Case(
        hook=power_sgd(1, min_compression_rate=1, use_error_feedback=False)
    ),
    # It has as many columns as any gradient, so that random Qs do not matter.
    "power_sgd_full_rank": Case(
        hook=power_sgd(WIDTH, min_compression_rate=0.01, warm_start=False)
    ),
}


def make_mlp(case, rank):
    # Every rank begins elsewhere; DDP is to bring them together.
    model = fill(Mlp(), suffix=f".{rank}" if rank else "")
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name not in case.frozen
    if case.ignored:
        DDP._set_params_and_buffers_to_ignore_for_model(model, list(case.ignored))
    ddp = DDP(model, **case.options)
    if case.hook is not None:
        case.hook(ddp)
    return model, ddp


def train_step(case, ddp, step, rank):
    use_branch = not case.unused or branch_used(step, rank)
    count = case.microbatches_of(step)
    for microbatch in range(count):
        last = microbatch + 1 == count
        inputs, targets = batch(step, rank, microbatch)
        with contextlib.nullcontext() if last else ddp.no_sync():
            outputs = ddp(inputs, use_branch, case.times)
            (F.cross_entropy(outputs, targets) / count).backward()


def flatten(tensors):
    return torch.cat([x.detach().flatten() for x in tensors]).numpy()


def gradients(model):
    """NaN where there is none."""
    return flatten(
        torch.full_like(p, math.nan) if p.grad is None else p.grad
        for p in model.parameters()
    )


def run_mlp(case, rank):
    model, ddp = make_mlp(case, rank)
    optimizer = case.optimizer(p for p in model.parameters() if p.requires_grad)
    first = None
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        train_step(case, ddp, step, rank)
        first = gradients(model) if first is None else first
        case.clip(model.parameters())
        optimizer.step()
    return {"first_gradients": first, "final": flatten(model.parameters())}


# ResNet-18


def images(step, rank):
    targets = (torch.arange(BATCH) * 3 + step + 2 * rank) % 10
    return formula(f"images.{step}.{rank}", (BATCH, 3, 32, 32)), targets


def make_resnet(dtype):
    return fill(torchvision.models.resnet18(num_classes=10)).to(dtype)


def resnet_loss(model, dtype, step, rank):
    inputs, targets = images(step, rank)
    return F.cross_entropy(model(inputs.to(dtype)), targets)


def run_resnet(rank, dtype, steps, sync_buffers):
    model = make_resnet(dtype)
    ddp = DDP(model, forward_sync_buffers=sync_buffers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    for step in range(steps):
        optimizer.zero_grad(set_to_none=True)
        resnet_loss(ddp, dtype, step, rank).backward()
        optimizer.step()
    return {
        "parameters": summary(model.named_parameters()),
        "buffers": summary(model.named_buffers()),
    }


def summary(items):
    """By name: SHA-256 of the values' bytes, and a few values, evenly spread."""
    result = {}
    for name, tensor in items:
        values = tensor.detach().contiguous().numpy()
        count = min(values.size, 5)
        places = [i * (values.size - 1) // max(count - 1, 1) for i in range(count)]
        result[name] = [
            hashlib.sha256(values.tobytes()).hexdigest(),
            [float(values.flat[i]) for i in places],
        ]
    return result


def run_resnets(rank):
    double, single = torch.float64, torch.float32
    return {
        "float64": {
            "broadcast_buffers": run_resnet(rank, double, STEPS, True),
            "local_buffers": run_resnet(rank, double, STEPS, False),
        },
        "float32_one_step": {
            "broadcast_buffers": run_resnet(rank, single, 1, True),
        },
    }


# Ranks, and what they hand back


def rank_main(rank, size, store_path, connection):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    store = dist.FileStore(store_path, size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    result = {"mlp": {name: run_mlp(case, rank) for name, case in CASES.items()}}
    if size == 2:
        result["resnet"] = run_resnets(rank)
    connection.send(result)
    connection.close()
    dist.barrier()
    # Gloo's threads may abort an orderly exit.
    os._exit(0)


def run_ranks(size):
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(size):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(
                target=rank_main, args=(rank, size, folder + "/store", sender)
            )
            process.start()
            sender.close()
            ranks.append((process, receiver))
        results = [receiver.recv() for _, receiver in ranks]
        for process, _ in ranks:
            process.join()
    return results


def write_safetensors(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, tensor in sorted(tensors.items()):
        values = tensor.tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(values)],
        }
        data += values
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def mlp_tensors(size, results):
    """Ranks agree on all but what they ignore: those are told apart."""
    tensors = {}
    for name, case in CASES.items():
        for kind in ("first_gradients", "final"):
            values = [result["mlp"][name][kind] for result in results]
            for rank, value in enumerate(values):
                if case.ignored:
                    tensors[f"{name}/{size}/{kind}/{rank}"] = value
                else:
                    same = value.tobytes() == values[0].tobytes()
                    assert same, f"{name}, {size} ranks: {kind} of rank {rank}"
            if not case.ignored:
                tensors[f"{name}/{size}/{kind}"] = values[0]
    return tensors


def resnet_json(results):
    """Parameters once, buffers of each rank."""
    merged = {}
    for dtype, runs in results[0]["resnet"].items():
        parameters = runs["broadcast_buffers"]["parameters"]
        merged[dtype] = {"parameters": parameters}
        for mode in runs:
            ranks = [result["resnet"][dtype][mode] for result in results]
            assert all(each["parameters"] == parameters for each in ranks), mode
            merged[dtype][mode] = [each["buffers"] for each in ranks]
    return merged


def main():
    folder = sys.argv[1]
    made_with = f"torch {torch.__version__}, torchvision {torchvision.__version__}"
    tensors = {}
    for size in (2, 3, 4):
        results = run_ranks(size)
        tensors.update(mlp_tensors(size, results))
        if size == 2:
            with open(f"{folder}/ddp_parity_resnet.json", "w") as file:
                cases = {"made_with": made_with, **resnet_json(results)}
                json.dump(cases, file, indent=0, sort_keys=True)
                file.write("\n")
    path = f"{folder}/ddp_parity_mlp.safetensors"
    write_safetensors(path, tensors, {"made_with": made_with})


if __name__ == "__main__":
    main()
