"""Makes the files of this folder with PyTorch's Python package.

  pip install torch && python3 make_pytorch_files.py

Values are 0, 1, ... in every dtype, so that the test can tell them.
"""

import collections
import os

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
torch.jit.script(torch.nn.Linear(1, 1)).save(os.path.join(FOLDER, "script.pt"))
