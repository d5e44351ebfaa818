"""A model on one device, a CPU or a GPU: recipes to choose from.

A step does not wait for the device: whoever reads the loss that it gives does.
"""

import torch

from common import cross_entropy, precision

WARM_UP_STEPS = 3


class Eager:
    def __init__(self, task, batches):
        self.device = task.device
        self.dtype = task.dtype
        self.module = task.make_model().to(self.device)
        self.model = self.compiled(self.module)
        self.optimizer = self.make_optimizer(task)
        self.batches = [
            (inputs.to(self.device), targets.to(self.device))
            for inputs, targets in batches
        ]
        self.cuts = []
        self.next = 0

    def compiled(self, module):
        return module

    def make_optimizer(self, task):
        return task.make_optimizer(self.module.parameters())

    def train(self, inputs, targets):
        self.optimizer.zero_grad(set_to_none=True)
        with precision(self.dtype, self.device):
            loss = cross_entropy(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def next_batch(self):
        batch = self.batches[self.next % len(self.batches)]
        self.next += 1
        return batch

    def step(self):
        return self.train(*self.next_batch())


class Compile(Eager):
    def compiled(self, module):
        return torch.compile(module)


class ReduceOverhead(Eager):
    """torch.compile with CUDA graphs around what it has compiled."""

    def compiled(self, module):
        return torch.compile(module, mode="reduce-overhead")

    def step(self):
        # Else a step's tensors count as still in use in the next.
        torch.compiler.cudagraph_mark_step_begin()
        return super().step().clone()


class CudaGraphs(Eager):
    """Forward, backward and optimizer, captured in one CUDA graph and replayed."""

    def __init__(self, task, batches):
        if task.device != "cuda":
            raise ValueError("CUDA graphs need --device=cuda")
        super().__init__(task, batches)
        self.inputs, self.targets = (part.clone() for part in self.batches[0])
        self.capture()

    def make_optimizer(self, task):
        parameters = self.module.parameters()
        # SGD can be captured as it is, and does not know the word.
        adamw = {"capturable": True} if task.optimizer == "adamw" else {}
        return task.make_optimizer(parameters, **adamw)

    def capture(self):
        values = {
            name: value.clone() for name, value in self.module.state_dict().items()
        }
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(WARM_UP_STEPS):
                self.train(self.inputs, self.targets)
        torch.cuda.current_stream().wait_stream(beside)
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.train(self.inputs, self.targets)
        # Warming up has trained: back to the beginning, at the same addresses.
        self.module.load_state_dict(values)
        for state in self.optimizer.state.values():
            for value in state.values():
                if torch.is_tensor(value):
                    value.zero_()

    def step(self):
        inputs, targets = self.next_batch()
        self.inputs.copy_(inputs)
        self.targets.copy_(targets)
        self.graph.replay()
        return self.loss


def one_device_named(name, task, batches):
    recipes = {
        "eager": Eager,
        "compile": Compile,
        "reduce_overhead": ReduceOverhead,
        "cuda_graphs": CudaGraphs,
    }
    return recipes[name](task, batches)
