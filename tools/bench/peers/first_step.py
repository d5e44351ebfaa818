#!/usr/bin/env python3
"""What torchrun starts to be timed from its start to the first step's end.

    torchrun --standalone --nproc_per_node=2 first_step.py

A DistributedDataParallel of mlp_small (8 linear layers of 64) takes one step;
then rank 0 prints a line.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

WIDTH = 64
LAYERS = 8


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    layers = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    model = DistributedDataParallel(
        nn.Sequential(*layers[:-1]), gradient_as_bucket_view=True, static_graph=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    inputs, targets = torch.randn(32, WIDTH), torch.randint(WIDTH, (32,))
    F.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print("first step done", flush=True)


if __name__ == "__main__":
    main()
    # Gloo's threads sometimes abort a process that ends the usual way.
    os._exit(0)
