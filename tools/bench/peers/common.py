"""What the benchmarks' peers share: reading weights and batches, measuring."""

import json
import resource
import time

import torch
from torch.nn import functional as F

DTYPES = {"F32": torch.float32, "I64": torch.int64}


def read_safetensors(path):
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(data[begin:end], dtype=DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"]).clone()
    return tensors


def read_inputs(path):
    """(state dict, batches)"""
    tensors = read_safetensors(path)
    state = {
        name.removeprefix("state."): tensor
        for name, tensor in tensors.items()
        if name.startswith("state.")
    }
    batches = []
    while (prefix := f"batch.{len(batches)}.") + "inputs" in tensors:
        batches.append((tensors[prefix + "inputs"], tensors[prefix + "targets"]))
    return state, batches


def precision(dtype, device="cpu"):
    """What forward and loss run under: PyTorch's autocast for bf16."""
    return torch.autocast(device, torch.bfloat16, enabled=dtype == "bf16")


def kernels(dtype, recipe, device="cpu"):
    """What multiplies here, and on which instructions the rest runs."""
    if device != "cpu":
        allowed = torch.backends.cuda.matmul.allow_tf32
        name = torch.cuda.get_device_name()
        return f"{name}, TF32 allowed" if allowed else f"{name}, no TF32"
    products = "MKL" if dtype == "fp32" and torch.backends.mkl.is_available() else "oneDNN"
    capability = torch.backends.cpu.get_cpu_capability()
    others = "Inductor's other kernels" if recipe == "compile" else "other kernels"
    return f"products of {dtype}: {products}; {capability} in {others}"


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def wait_for(device):
    """Until it has done all that it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def timed(step, count, device="cpu"):
    """What `count` calls took each: time, processor time, page faults."""
    wait_for(device)
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    for _ in range(count):
        step()
    wait_for(device)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "ms": wall * 1e3 / count,
        "cpu_ms": cpu * 1e3 / count,
        "faults": (after.ru_minflt - before.ru_minflt) / count,
    }


def peak_mib(device="cpu"):
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    # ru_maxrss would count what the parent had before exec.
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0


def reset_peak():
    """Has peak_mib begin anew, of what is there now."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
