"""One rank of job.py's, with what makes PyTorch fastest in a job of some seconds.

Batches are taken from the data set as wholes, not sample by sample; gradients are views
of buckets, the graph is static, the optimizer fused. Nothing is compiled, nor is memory
pinned: compiling takes longer than the job, and pinning is for GPUs.
"""

import gzip
import json
import os
import statistics
import time

import numpy
import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from common import read_inputs
from models import make_model

MEAN, STD = 0.2860, 0.3530
EVALUATION_BATCH = 256


def read_idx(folder, stem, header):
    path = os.path.join(folder, stem)
    opened = open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz")
    with opened as file:
        return torch.from_numpy(numpy.frombuffer(bytearray(file.read()), numpy.uint8)[header:])


class FashionMnist(Dataset):
    def __init__(self, folder, prefix):
        images = read_idx(folder, f"{prefix}-images-idx3-ubyte", 16)
        self.images = images.view(-1, 1, 28, 28)
        self.labels = read_idx(folder, f"{prefix}-labels-idx1-ubyte", 8)

    def __len__(self):
        return len(self.labels)

    def __getitems__(self, indices):
        """A batch: DataLoader prefers this to samples, one by one."""
        images = self.images[indices].float().div_(255).sub_(MEAN).div_(STD)
        return images, self.labels[indices].long()


def loader(dataset, sampler, batch_size, drop_last, workers):
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        drop_last=drop_last,
        collate_fn=lambda batch: batch,
        num_workers=workers,
        persistent_workers=workers > 0,
        multiprocessing_context="fork" if workers > 0 else None,
        pin_memory=False,
    )


class Rank:
    def __init__(self, flags, rank):
        self.flags = flags
        self.rank = rank
        state, _ = read_inputs(flags.inputs)
        self.model = make_model(flags.model, state)
        self.trained = self.model
        if flags.ranks > 1:
            self.trained = DistributedDataParallel(
                self.model, gradient_as_bucket_view=True, static_graph=True
            )
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=flags.learning_rate, momentum=0.9, fused=True
        )
        train = FashionMnist(flags.data_dir, "train")
        sampler = DistributedSampler(train, flags.ranks, rank, shuffle=True, seed=0)
        sampler.set_epoch(0)
        share = flags.batch_size // flags.ranks
        self.train_batches = loader(train, sampler, share, True, flags.workers)
        test = FashionMnist(flags.data_dir, "t10k")
        self.test_count = len(test)
        mine = range(rank, len(test), flags.ranks)
        self.test_batches = loader(test, mine, EVALUATION_BATCH, False, flags.workers)

    def summed(self, numbers):
        """Over the ranks."""
        total = torch.tensor(numbers, dtype=torch.float64)
        if self.flags.ranks > 1:
            dist.all_reduce(total)
        return total.tolist()

    def train(self):
        """Losses of the steps on this rank, and what each took."""
        self.trained.train()
        losses = []
        seconds = []
        before = time.perf_counter()
        for images, labels in self.train_batches:
            self.optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(self.trained(images), labels)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
            now = time.perf_counter()
            seconds.append(now - before)
            before = now
            if len(losses) == self.flags.max_steps:
                break
        return losses, seconds

    def save(self):
        if self.rank == 0:
            state = {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
            }
            torch.save(state, self.flags.checkpoint)

    @torch.inference_mode()
    def evaluate(self):
        """Mean loss and accuracy of the whole test set."""
        self.model.eval()
        loss = correct = 0
        for images, labels in self.test_batches:
            logits = self.model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            correct += (logits.argmax(1) == labels).sum().item()
        return [total / self.test_count for total in self.summed([loss, correct])]

    def line_means(self, losses):
        """Means of the whole batch's losses, of each --log_every steps and of the last."""
        whole = [total / self.flags.ranks for total in self.summed(losses)]
        every = self.flags.log_every
        return [statistics.fmean(whole[i : i + every]) for i in range(0, len(whole), every)]

    def run(self):
        moments = {"began": time.time()}
        losses, seconds = self.train()
        moments["trained"] = time.time()
        self.save()
        moments["saved"] = time.time()
        test_loss, test_accuracy = self.evaluate()
        moments["evaluated"] = time.time()
        return {
            **moments,
            "steps": len(losses),
            "step_s": statistics.median(seconds),
            "losses": self.line_means(losses),
            "test_loss": test_loss,
            "test_accuracy": test_accuracy,
        }


def run_rank(flags, rank):
    if flags.ranks > 1:
        dist.init_process_group(
            "gloo",
            init_method="file://" + flags.rendezvous,
            rank=rank,
            world_size=flags.ranks,
        )
    figures = Rank(flags, rank).run()
    if rank == 0:
        print(json.dumps(figures), flush=True)
