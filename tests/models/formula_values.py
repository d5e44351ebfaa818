"""Weights and inputs by formula: formula_values.h, for Python."""

import math

import numpy as np
import torch

MASK = (1 << 64) - 1


def fnv1a(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def uniform(name, count):
    """`count` doubles in [-1, 1): splitmix64 of (hash of the name) + index."""
    with np.errstate(over="ignore"):
        x = np.arange(count, dtype=np.uint64) + np.uint64(fnv1a(name))
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(40)).astype(np.float64) / 2**23 - 1


def formula(name, shape):
    count = math.prod(shape)
    if name == "input":
        offset, scale = 0.0, 1.0
    elif name.endswith("running_var"):
        offset, scale = 1.0, 0.5
    elif len(shape) > 1:
        offset, scale = 0.0, math.sqrt(6.0 / (count // shape[0]))
    elif name.endswith("weight"):
        offset, scale = 0.5, 0.25
    else:
        offset, scale = 0.0, 0.125
    values = offset + scale * uniform(name, count)
    return torch.from_numpy(values.astype(np.float32)).reshape(shape)


def fill(model, suffix=""):
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(formula(name + suffix, tuple(tensor.shape)))
    return model
