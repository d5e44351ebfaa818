"""A model whose layers ranks share: torch.distributed.tensor.parallel."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from averaging import Averaging
from models import Conv1D, Gpt2, layers_of


class Tensor(Averaging):
    """Its words, with "_" between: "sequence" divides what stands between products by
    tokens, "loss" computes the loss of divided logits, and "compile" compiles the model."""

    def __init__(self, words, ranks):
        self.mesh = dist.device_mesh.init_device_mesh("cpu", (ranks,))
        self.share = 1 / ranks  # each tells the whole loss
        self.words = words

    def wrap(self, module, **_):
        if isinstance(module, Gpt2):
            make_linear(module, self.mesh.size())
        plan = gpt_plan if isinstance(module, Gpt2) else llama_plan
        sequence = "sequence" in self.words
        tied = layers_of(module)[0].weight is module.lm_head.weight
        if sequence and isinstance(module, Gpt2):
            take_own_positions(module.transformer["wpe"], self.mesh)
        parallelize_module(module, self.mesh, plan(Styles(sequence, "loss" in self.words)))
        if tied:
            module.lm_head.weight = layers_of(module)[0].weight
        return torch.compile(module) if "compile" in self.words else module

    def loss_context(self):
        return loss_parallel() if "loss" in self.words else contextlib.nullcontext()


class Styles:
    """How each kind of layer is divided."""

    def __init__(self, sequence, loss):
        between = Shard(1) if sequence else Replicate()
        self.embedding = RowwiseParallel(
            input_layouts=Replicate(), output_layouts=between
        )
        # Each part of a layer takes the same input: its gradients are summed once.
        self.entry = PrepareModuleInput(
            input_layouts=between, desired_input_layouts=Replicate()
        )
        self.columns = ColwiseParallel()
        self.rows = RowwiseParallel(output_layouts=between)
        self.head = ColwiseParallel(
            input_layouts=between,
            output_layouts=Shard(-1) if loss else Replicate(),
            use_local_output=not loss,
        )
        self.norm = SequenceParallel() if sequence else None
        self.positions = (
            SequenceParallel(sequence_dim=0, use_local_output=True) if sequence else None
        )


def only_divided(plan):
    return {name: style for name, style in plan.items() if style is not None}


def gpt_plan(styles):
    return only_divided(
        {
            "transformer.wte": styles.embedding,
            "transformer.wpe": styles.positions,
            "transformer.h.*.ln_1": styles.norm,
            "transformer.h.*.attn": styles.entry,
            "transformer.h.*.attn.c_attn": styles.columns,
            "transformer.h.*.attn.c_proj": styles.rows,
            "transformer.h.*.ln_2": styles.norm,
            "transformer.h.*.mlp": styles.entry,
            "transformer.h.*.mlp.c_fc": styles.columns,
            "transformer.h.*.mlp.c_proj": styles.rows,
            "transformer.ln_f": styles.norm,
            "lm_head": styles.head,
        }
    )


def llama_plan(styles):
    return only_divided(
        {
            "model.embed_tokens": styles.embedding,
            "model.layers.*.input_layernorm": styles.norm,
            "model.layers.*.self_attn": styles.entry,
            "model.layers.*.self_attn.[qkv]_proj": styles.columns,
            "model.layers.*.self_attn.o_proj": styles.rows,
            "model.layers.*.post_attention_layernorm": styles.norm,
            "model.layers.*.mlp": styles.entry,
            "model.layers.*.mlp.gate_proj": styles.columns,
            "model.layers.*.mlp.up_proj": styles.columns,
            "model.layers.*.mlp.down_proj": styles.rows,
            "model.norm": styles.norm,
            "lm_head": styles.head,
        }
    )


def as_linear(layer, parts=1, ranks=1):
    """The styles know no Conv1D. Outputs of `parts` kinds lie rank by rank."""

    def arranged(outputs):
        by_kind = outputs.unflatten(0, (parts, ranks, -1))
        return by_kind.transpose(0, 1).flatten(0, 2).contiguous()

    linear = nn.Linear(*layer.weight.shape)
    linear.weight = nn.Parameter(arranged(layer.weight.detach().t()))
    linear.bias = nn.Parameter(arranged(layer.bias.detach()))
    return linear


def make_linear(model, ranks):
    for block in model.transformer["h"]:
        block.attn.c_attn = as_linear(block.attn.c_attn, 3, ranks)  # q, k, v
        block.attn.c_proj = as_linear(block.attn.c_proj)
        block.mlp.c_fc = as_linear(block.mlp.c_fc)
        block.mlp.c_proj = as_linear(block.mlp.c_proj)
    assert not any(isinstance(each, Conv1D) for each in model.modules())


def take_own_positions(wpe, mesh):
    def own(_, args):
        return (args[0].chunk(mesh.size())[mesh.get_local_rank()],)

    wpe.register_forward_pre_hook(own)
