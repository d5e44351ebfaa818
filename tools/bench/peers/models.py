"""The benchmark's models in plain PyTorch, under the names that tandem uses.

Each is made to fit a state dict, whose values are then loaded into it.
"""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional as F

GPT_HEADS = {"gpt_tiny": 4, "gpt_baby": 6, "gpt2": 12}
LLAMA_HEADS = {"llama_baby": 8}
TIED = ("gpt_baby", "gpt2")


def mlp(state):
    shapes = [state[f"fc{i}.weight"].shape for i in range(1, len(state) // 2 + 1)]
    parts = OrderedDict(flatten=nn.Flatten())
    for i, (outputs, inputs) in enumerate(shapes, start=1):
        parts[f"fc{i}"] = nn.Linear(inputs, outputs)
        if i < len(shapes):
            parts[f"relu{i}"] = nn.ReLU()
    return nn.Sequential(parts)


def cnn(state):
    def convolution(name):
        outputs, inputs = state[f"{name}.weight"].shape[:2]
        return nn.Conv2d(inputs, outputs, 3, padding=1)

    def linear(name):
        outputs, inputs = state[f"{name}.weight"].shape
        return nn.Linear(inputs, outputs)

    return nn.Sequential(
        OrderedDict(
            conv1=convolution("conv1"),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=convolution("conv2"),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=linear("fc1"),
            relu3=nn.ReLU(),
            fc2=linear("fc2"),
        )
    )


class BasicBlock(nn.Module):
    """torchvision's."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += shortcut
        return self.relu(out)


class ResNet18(nn.Module):
    """torchvision's."""

    def __init__(self, channels, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


class Conv1D(nn.Module):
    """A linear layer whose weight is stored as [in, out], as GPT-2 has it."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        rows = x.reshape(-1, self.weight.shape[0])
        return torch.addmm(self.bias, rows, self.weight).view(*x.shape[:-1], -1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.head_size = width // heads
        self.c_attn = Conv1D(width, 3 * width)
        self.c_proj = Conv1D(width, width)

    def forward(self, x):
        q, k, v = (
            part.unflatten(2, (-1, self.head_size)).transpose(1, 2)
            for part in self.c_attn(x).chunk(3, dim=-1)
        )
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(heads.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Conv1D(width, 4 * width)
        self.c_proj = Conv1D(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    def __init__(self, layers, width, heads, context, vocabulary):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, width),
                "wpe": nn.Embedding(context, width),
                "h": nn.ModuleList(Block(width, heads) for _ in range(layers)),
                "ln_f": nn.LayerNorm(width),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        parts = self.transformer
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = parts["wte"](tokens) + parts["wpe"](positions)
        for block in parts["h"]:
            x = block(x)
        return self.lm_head(parts["ln_f"](x))


def gpt(name, state):
    vocabulary, width = state["transformer.wte.weight"].shape
    context = state["transformer.wpe.weight"].shape[0]
    layers = sum(name.endswith("attn.c_attn.weight") for name in state)
    model = Gpt2(layers, width, GPT_HEADS[name], context, vocabulary)
    if name in TIED:  # one parameter, as GPT-2 has it
        model.lm_head.weight = model.transformer["wte"].weight
    return model


class LlamaAttention(nn.Module):
    def __init__(self, width, kv_width, turns):
        super().__init__()
        self.turns = turns
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, kv_width, bias=False)
        self.v_proj = nn.Linear(width, kv_width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def turned(self, x):
        """Rotary positions, which turn pairs of a head's first and second half."""
        cos, sin = (part[: x.shape[2]] for part in self.turns)
        left, right = x.chunk(2, dim=-1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)

    def forward(self, x):
        head_size = 2 * self.turns[0].shape[1]
        q, k, v = (
            project(x).unflatten(2, (-1, head_size)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        heads = F.scaled_dot_product_attention(
            self.turned(q), self.turned(k), v, is_causal=True, enable_gqa=True
        )
        return self.o_proj(heads.transpose(1, 2).flatten(2))


class LlamaMlp(nn.Module):
    def __init__(self, width, ffn_width):
        super().__init__()
        self.gate_proj = nn.Linear(width, ffn_width, bias=False)
        self.up_proj = nn.Linear(width, ffn_width, bias=False)
        self.down_proj = nn.Linear(ffn_width, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    def __init__(self, width, kv_width, ffn_width, turns):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(width, eps=1e-5)
        self.self_attn = LlamaAttention(width, kv_width, turns)
        self.post_attention_layernorm = nn.RMSNorm(width, eps=1e-5)
        self.mlp = LlamaMlp(width, ffn_width)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Under Hugging Face's names."""

    def __init__(self, blocks, vocabulary, width):
        super().__init__()
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(vocabulary, width),
                "layers": nn.ModuleList(blocks),
                "norm": nn.RMSNorm(width, eps=1e-5),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.model["embed_tokens"](tokens)
        for block in self.model["layers"]:
            x = block(x)
        return self.lm_head(self.model["norm"](x))


LLAMA_CONTEXT = 256


def llama(name, state):
    vocabulary, width = state["model.embed_tokens.weight"].shape
    first = "model.layers.0."
    kv_width = state[first + "self_attn.k_proj.weight"].shape[0]
    ffn_width = state[first + "mlp.up_proj.weight"].shape[0]
    layers = sum(each.endswith("q_proj.weight") for each in state)
    half = width // LLAMA_HEADS[name] // 2
    frequencies = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(LLAMA_CONTEXT).unsqueeze(1) * frequencies
    turns = (angles.cos().float(), angles.sin().float())
    blocks = [LlamaBlock(width, kv_width, ffn_width, turns) for _ in range(layers)]
    return Llama(blocks, vocabulary, width)


def resnet18(state):
    channels = state["conv1.weight"].shape[1]
    classes = state["fc.weight"].shape[0]
    return ResNet18(channels, classes)


def make_model(name, state):
    if name.startswith("mlp"):
        model = mlp(state)
    elif name == "cnn":
        model = cnn(state)
    elif name == "resnet18":
        model = resnet18(state)
    elif name in GPT_HEADS:
        model = gpt(name, state)
    elif name in LLAMA_HEADS:
        model = llama(name, state)
    else:
        raise ValueError(f"no model is called {name}")
    model.load_state_dict(state)
    return model


class GptPositions(nn.Module):
    def __init__(self, wpe):
        super().__init__()
        self.wpe = wpe

    def forward(self, x):
        return x + self.wpe(torch.arange(x.shape[1]))


def layers_of(model):
    """The model as a list of modules, between any two of which it can be cut."""
    if isinstance(model, Gpt2):
        parts = model.transformer
        embeddings = [parts["wte"], GptPositions(parts["wpe"])]
        return [*embeddings, *parts["h"], parts["ln_f"], model.lm_head]
    if isinstance(model, Llama):
        parts = model.model
        return [parts["embed_tokens"], *parts["layers"], parts["norm"], model.lm_head]
    if isinstance(model, ResNet18):
        groups = (model.layer1, model.layer2, model.layer3, model.layer4)
        blocks = [block for group in groups for block in group]
        stem = [model.conv1, model.bn1, model.relu, model.maxpool]
        return [*stem, *blocks, model.avgpool, nn.Flatten(), model.fc]
    return list(model)
