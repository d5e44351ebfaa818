"""Makes python.safetensors with the format's own Python package.

  pip install safetensors numpy && python3 make_safetensors.py

Values are i, i + 1, ... in every dtype, so that the test can tell them.
"""

import os

import numpy as np
import safetensors.numpy

DTYPES = {
    "bool": np.bool_, "u8": np.uint8, "i8": np.int8, "i16": np.int16,
    "i32": np.int32, "i64": np.int64, "f16": np.float16, "f32": np.float32,
    "f64": np.float64,
}

tensors = {
    name: (np.arange(6) % 2 if name == "bool" else np.arange(6)).astype(dtype)
    .reshape(2, 3) for name, dtype in DTYPES.items()
}
tensors["scalar"] = np.array(3.5, dtype=np.float32)
tensors["empty"] = np.zeros((0, 4), dtype=np.float32)
tensors["name with \"quotes\" and \u00fc"] = np.array([1], dtype=np.int64)
safetensors.numpy.save_file(
    tensors,
    os.path.join(os.path.dirname(os.path.abspath(__file__)),
                 "python.safetensors"),
    metadata={"format": "pt", "by": "safetensors for Python"})
