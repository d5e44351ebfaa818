#!/usr/bin/env python3
"""Writes testdata/communication_hook_parity.json: gradients after PyTorch's hooks.

Needs torch 2.15.0:

    python3 make_communication_hook_parity.py testdata/communication_hook_parity.json

Two ranks on Gloo run DistributedDataParallel with each of its hooks. The loss is
the inner product of parameters and given numbers, so that those numbers are the
gradients; they follow from a formula (`gradient` below, and in
communication_hook_parity_test.cc), as do the first Qs of PowerSGD.

Of the half-precision hooks every bit is stored, of PowerSGD eight digits.
"""

import json
import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

SHAPES = {"weight": (12, 10), "conv": (6, 4, 3, 3), "bias": (12,), "small": (3, 4)}
STEPS = 7
START = 2  # the first that is compressed
POWER_SGD = {
    "power_sgd_rank1": dict(matrix_approximation_rank=1),
    "power_sgd_rank2": dict(matrix_approximation_rank=2),
    "power_sgd_rank3": dict(matrix_approximation_rank=3, min_compression_rate=1),
    "power_sgd_no_feedback": dict(
        matrix_approximation_rank=2, use_error_feedback=False
    ),
    "power_sgd_epsilon": dict(
        matrix_approximation_rank=1, orthogonalization_epsilon=0.5
    ),
}


def gradient(name, step, rank):
    shape = SHAPES[name]
    count = torch.Size(shape).numel()
    i = torch.arange(count, dtype=torch.int64)
    key = len(name) * 37 + step * 57 + rank * 101
    return (((i * i * 7 + i * (key + 13) + key) % 251 - 125) / 47.0).view(shape)


def first_q(name, columns, rank):
    i = torch.arange(columns * rank, dtype=torch.int64)
    return ((i * i * 5 + i * 3 + len(name)) % 31 - 15) / 16.0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        for name, shape in SHAPES.items():
            self.register_parameter(name, nn.Parameter(torch.ones(shape)))

    def forward(self, step, rank):
        return sum(
            (parameter * gradient(name, step, rank)).sum()
            for name, parameter in self.named_parameters()
        )


def with_first_qs(names):
    """PowerSGD that begins with our Qs: as if it had run before."""

    def hook(state, bucket):
        if state.iter == START and not state.q_memory_dict:
            ps, qs = 0, []
            for parameter, tensor in zip(bucket.parameters(), bucket.gradients()):
                rows, columns = tensor.view(tensor.shape[0], -1).shape
                rank = min(rows, columns, state.matrix_approximation_rank)
                if powerSGD_hook._should_compress(
                    rows, columns, rank, state.min_compression_rate
                )[0]:
                    ps += rows * rank
                    qs.append(first_q(names[parameter.data_ptr()], columns, rank))
            state.p_memory_dict[bucket.index()] = torch.zeros(ps)
            state.q_memory_dict[bucket.index()] = torch.cat(qs)
        return powerSGD_hook.powerSGD_hook(state, bucket)

    return hook


def run(rank, register):
    model = Model()
    ddp = nn.parallel.DistributedDataParallel(model)
    register(ddp, {p.data_ptr(): name for name, p in model.named_parameters()})
    steps = []
    for step in range(STEPS):
        ddp.zero_grad()
        ddp(step, rank).backward()
        steps.append(
            {name: p.grad.flatten().tolist() for name, p in model.named_parameters()}
        )
    return steps


def rounded(steps):
    return [
        {name: [float(f"{x:.8g}") for x in values] for name, values in step.items()}
        for step in steps
    ]


def work(rank, port, path):
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo"
    )
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    cases = {}
    for name, hook in {
        "allreduce": default_hooks.allreduce_hook,
        "fp16": default_hooks.fp16_compress_hook,
        "bf16": default_hooks.bf16_compress_hook,
    }.items():
        steps = run(rank, lambda ddp, names: ddp.register_comm_hook(None, hook))
        cases[name] = steps[:2]
    for name, options in POWER_SGD.items():
        state = powerSGD_hook.PowerSGDState(
            None, start_powerSGD_iter=START, **options
        )
        steps = run(
            rank,
            lambda ddp, names: ddp.register_comm_hook(state, with_first_qs(names)),
        )
        cases[name] = rounded(steps[START:])
    if rank == 0:
        with open(path, "w") as file:
            json.dump(cases, file, separators=(",", ":"))
            file.write("\n")
    dist.barrier()
    os._exit(0)


def main():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(work, (port, sys.argv[1]), nprocs=2)


if __name__ == "__main__":
    main()
