"""A model in one piece, trained by itself or as one of several replicas."""

from common import cross_entropy, precision


class WholeModel:
    def __init__(self, task, batches, averaging, microbatches=1):
        model = task.make_model()
        self.averaging = averaging
        self.dtype = task.dtype
        self.model = averaging.wrap(model, static_graph=microbatches == 1)
        self.optimizer = task.make_optimizer(model.parameters())
        averaging.prepare(model.parameters())
        self.batches = [
            list(zip(inputs.chunk(microbatches), targets.chunk(microbatches)))
            for inputs, targets in batches
        ]
        self.scale = averaging.loss_scale / microbatches
        self.cuts = []
        self.next = 0

    def backward(self, inputs, targets):
        with self.averaging.loss_context():
            with precision(self.dtype):
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
        if len(parts) > 1:
            with self.averaging.no_sync(self.model):
                losses = [self.backward(*part) for part in parts[:-1]]
        losses.append(self.backward(*parts[-1]))
        self.averaging.finish()
        self.optimizer.step()
        return sum(loss.item() for loss in losses) * self.averaging.share
