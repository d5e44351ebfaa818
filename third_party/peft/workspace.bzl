"""Hugging Face's PEFT 0.21.2, and what it takes to load an adapter on a model of transformers.

PyTorch's Python part is of the wheel that LibTorch is of, without the libraries that @libtorch and @libtorch_cuda have.
"""

load("//third_party/fetch:repositories.bzl", "wheels")
load("//third_party/libtorch:workspace.bzl", "TORCH_WHEEL")
load("//third_party/tensorboard:workspace.bzl", "NUMPY_WHEEL")

def peft():
    pins = dict(TORCH_WHEEL)
    pins.update(NUMPY_WHEEL)
    pins.update({
        "accelerate-1.15.0-py3-none-any.whl": [
            "accelerate",
            "1.15.0",
            "97eacca0b73e45cb867dbf8c5d5d4dc32219544300e0c8992c7334dc2ef33cec",
        ],
        "filelock-4.3.1-py3-none-any.whl": [
            "filelock",
            "4.3.1",
            "79e43df8e9fe509cd83a3899a7c186c8077cbbe4d200a1ed3705c2f3bb6bc487",
        ],
        "fsspec-2026.9.0-py3-none-any.whl": [
            "fsspec",
            "2026.9.0",
            "8dd6e646e99ea382bd85f97a45e6b526a442d79423a7dc673f1e2756d05fcb5f",
        ],
        "h11-0.16.0-py3-none-any.whl": [
            "h11",
            "0.16.0",
            "63cf8bbe7522de3bf65932fda1d9c2772064ffb3dae62d55932da54b31cb6c86",
        ],
        "httpcore2-2.16.2-py3-none-any.whl": [
            "httpcore2",
            "2.16.2",
            "16051ae2a42f776007543f32de9349a317b23d2cbb4e1456b4bac0e88b87419a",
        ],
        "httpx2-2.16.2-py3-none-any.whl": [
            "httpx2",
            "2.16.2",
            "f05c13aade4c45dbf1c9060647a1058f0acad62398fad96e741269edb33d46f5",
        ],
        "huggingface_hub-2.4.0-py3-none-any.whl": [
            "huggingface-hub",
            "2.4.0",
            "42ecfd93ede47bdd333daebbf66a32d7bfe2e18752754fe4d2d4f98a0179d801",
        ],
        "idna-3.20-py3-none-any.whl": [
            "idna",
            "3.20",
            "ab7ae7122974553370f0bdb919e1a960b2cd1bc1ef0276416d896db81c14582c",
        ],
        "mpmath-1.3.0-py3-none-any.whl": [
            "mpmath",
            "1.3.0",
            "a0b2b9fe80bbcd81a6647ff13108738cfb482d481d826cc0e02f5b35e5c88d2c",
        ],
        "packaging-26.4-py3-none-any.whl": [
            "packaging",
            "26.4",
            "81383611a09c1bc0b08b76e0fd5829d7c6824c65b27a6aee339da133f4233ea2",
        ],
        "peft-0.21.2-py3-none-any.whl": [
            "peft",
            "0.21.2",
            "106ab6077ff72c54d21577f9af5970e34bac7582cb14209f7b2b511e322a4eae",
        ],
        "pyyaml-6.0.4-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.manylinux_2_28_x86_64.whl": [
            "pyyaml",
            "6.0.4",
            "622aa875fa6533f25fedcffe23079357d65a690d462200afed5d8e9d0e01ebee",
        ],
        "regex-2026.11.19-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.manylinux_2_28_x86_64.whl": [
            "regex",
            "2026.11.19",
            "86d3b2ea69b3c56df3e8ddbac6cd98eaf5a8c5b5e7e006897ebdf7a28d6818e6",
        ],
        "safetensors-0.8.0-cp310-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl": [
            "safetensors",
            "0.8.0",
            "fd6f3f93c9a0a7cc2788ee63fb763353d4bd2e89b0751bc78fcf7dda00bea774",
        ],
        "sympy-1.14.0-py3-none-any.whl": [
            "sympy",
            "1.14.0",
            "e091cc3e99d2141a0ba2847328f5479b05d94a6635cb96148ccb3f34671bd8f5",
        ],
        "tokenizers-0.23.3-cp310-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl": [
            "tokenizers",
            "0.23.3",
            "376851d22bcf9d650a5c3090bb83e6cf9e895fbf0595369fa4cd43c1f69b5f87",
        ],
        "tqdm-4.70.1-py3-none-any.whl": [
            "tqdm",
            "4.70.1",
            "c293e525e6fef9c20e8728fd4612df02a0aa31bb5fe91ecd93e123b1b7bffa73",
        ],
        "transformers-5.24.0-py3-none-any.whl": [
            "transformers",
            "5.24.0",
            "ff5ebedf9359f94bb63772b6380eba6e7104d010cbbb2cb82c788817ea7486f6",
        ],
        "truststore-0.10.5-py3-none-any.whl": [
            "truststore",
            "0.10.5",
            "9aaaedaefaf06d8b206278cf8b5012bc897f485a874503501e12d776df78951c",
        ],
        "typing_extensions-4.16.0-py3-none-any.whl": [
            "typing-extensions",
            "4.16.0",
            "481caa481374e813c1b176ada14e97f1f67a4539ce9cfeb3f350d78d6370c2e8",
        ],
    })
    wheels(
        name = "peft",
        build_file = Label("//third_party/peft:peft.BUILD"),
        members = [
            "*.dist-info/METADATA",
            "accelerate/*.py",
            "filelock/*.py",
            "fsspec/*.py",
            "h11/*.py",
            "httpcore2/*.py",
            "httpx2/*.py",
            "huggingface_hub/*.py",
            "idna/*.py",
            "mpmath/*.py",
            "numpy.libs/*",
            "numpy/*.py",
            "numpy/*.so",
            "packaging/*.py",
            "peft/*.py",
            "regex/*.py",
            "regex/*.so",
            "safetensors/*.py",
            "safetensors/*.so",
            "sympy/*.py",
            "tokenizers/*.py",
            "tokenizers/*.so",
            "torch/*.py",
            "torch/_C.*.so",
            "torch/bin/torch_shm_manager",
            "torch/lib/libshm.so",
            "torch/lib/libtorch.so",
            "torch/lib/libtorch_global_deps.so",
            "torch/lib/libtorch_python.so",
            "torchgen/*.py",
            "tqdm/*.py",
            "transformers/*.py",
            "truststore/*.py",
            "typing_extensions.py",
            "yaml/*.py",
        ],
        wheels = pins,
    )
