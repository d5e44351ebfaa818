"""Makes the files of this folder with PyTorch's Python package.

  pip install torch && python3 make_pytorch_files.py

Values are 0, 1, ... in every dtype, so that the test can tell them.
"""

import collections
import json
import os
import struct

import torch

FOLDER = os.path.dirname(os.path.abspath(__file__))


def save(name, value, **options):
    torch.save(value, os.path.join(FOLDER, name), **options)


class Command:
    """A pickle of this runs a command where somebody executes it."""

    def __reduce__(self):
        return os.system, ("touch was_executed",)


DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
    torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.complex64,
]
numbers = torch.arange(2)
save("dtypes.pt", {str(dtype).split(".")[1]: numbers.to(dtype) for dtype in DTYPES})

whole = torch.arange(12.0).reshape(3, 4)
save("views.pt", collections.OrderedDict(
    whole=whole, tied=whole, transposed=whole.t(), row=whole[1], column=whole[:, 2], steps=whole[::2, 1::2],
    scalar=torch.tensor(3.5), empty=torch.zeros(0, 4), none_of_it=whole[3:],
    parameter=torch.nn.Parameter(torch.ones(2)), frozen=torch.nn.Parameter(torch.ones(1), requires_grad=False)))

module = torch.nn.BatchNorm1d(2)  # whose state_dict has _metadata
save("module.pt", module.state_dict())
save("expanded.pt", {"wide": torch.ones(1).expand(1000)})
save("nested.pt", {"model": module.state_dict(), "optimizer": {"lr": 0.1}, "epoch": 3})
save("not_a_tensor.pt", {"weight": torch.ones(1), "epoch": 3})
save("sparse.pt", {"weight": torch.eye(2).to_sparse()})
save("legacy.pt", module.state_dict(), _use_new_zipfile_serialization=False)
save("protocol_4.pt", module.state_dict(), pickle_protocol=4)
save("command.pt", {"weight": torch.ones(1), "more": [Command()]})


def read_safetensors(path):
    """By hand, so that no other package is needed."""
    with open(path, "rb") as file:
        bytes_of_header, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(bytes_of_header))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    return {
        name: torch.frombuffer(data, dtype=torch.float32, offset=each["data_offsets"][0],
                               count=(each["data_offsets"][1] - each["data_offsets"][0]) // 4).reshape(each["shape"])
        for name, each in header.items()
    }


# The file that transformers saved before it had safetensors: the tied head is there, of the same storage.
gpt2 = read_safetensors(os.path.join(FOLDER, "../../../models/hugging_face/testdata/gpt2_tied/model.safetensors"))
gpt2 = {name: values.clone() for name, values in gpt2.items()}
gpt2["lm_head.weight"] = gpt2["transformer.wte.weight"]
save("gpt2_tied.bin", gpt2)

torch.jit.script(torch.nn.Linear(1, 1)).save(os.path.join(FOLDER, "script.pt"))
