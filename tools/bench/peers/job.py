#!/usr/bin/env python3
"""A whole job of PyTorch's in the suite job of //tools:bench, which starts it.

Trains a model on an epoch of Fashion-MNIST, or its first steps, saves a checkpoint and
evaluates the test set, on one rank or on several; then prints a line of JSON: when each
part was over (seconds since 1970) and what it came to.
"""

import argparse
import ctypes
import multiprocessing
import signal
import sys

PR_SET_PDEATHSIG = 1


def parse_flags():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--inputs", required=True, help="initial weights")
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--batch_size", type=int, required=True, help="of all ranks")
    parser.add_argument("--learning_rate", type=float, required=True)
    parser.add_argument("--max_steps", type=int, required=True, help="0: the epoch")
    parser.add_argument("--log_every", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--rendezvous", required=True)
    parser.add_argument("--checkpoint", required=True)
    return parser.parse_args()


def run(flags, rank):
    # Whoever kills a benchmark wants no ranks left.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # Here, so that who starts ranks imports nothing that only they need.
    from job_rank import run_rank

    run_rank(flags, rank)


def main():
    flags = parse_flags()
    # Ranks are there sooner than torchrun's, which imports torch before they do, and a
    # forked one ends at once: to take Python down takes a second or two once it has torch.
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=run, args=(flags, rank)) for rank in range(flags.ranks)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    return max(abs(each.exitcode) for each in ranks)


if __name__ == "__main__":
    sys.exit(main())
