"""LibTorch 2.15.0: the headers and CPU libraries of PyTorch's wheel (CUDA 13.2 build, C++11 ABI)."""

load("//third_party/fetch:repositories.bzl", "wheels")

# Of which //third_party/libtorch_cuda takes other files.
TORCH_WHEEL = {
    "torch-2.15.0-cp311-cp311-manylinux_2_28_x86_64.whl": [
        "torch",
        "2.15.0",
        "48c2d861134c0b5697c7602cb5ffa68f62a2989fdcd1717e593356f67996ca1e",
    ],
}

def libtorch():
    pins = {
        "nvidia_cuda_cupti-13.2.86-py3-none-manylinux_2_25_x86_64.whl": [
            "nvidia-cuda-cupti",
            "13.2.86",
            "8fa29f15dd8336181f961764d9d95236fc6b931dd0c8fcf8cd70aab0c310b586",
        ],
        "nvidia_cuda_runtime-13.2.86-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
            "nvidia-cuda-runtime",
            "13.2.86",
            "3498247680dfddce31bad102af7e3e26fc795342a3cac64722bb0fa95e7f60f0",
        ],
    }
    pins.update(TORCH_WHEEL)
    wheels(
        name = "libtorch",
        build_file = Label("//third_party/libtorch:libtorch.BUILD"),
        members = [
            "torch/include/*",
            "torch/lib/libc10.so",
            "torch/lib/libgomp.so.1",
            "torch/lib/libtorch_cpu.so",
            "nvidia/cu13/lib/libcudart.so.13",
            "nvidia/cu13/lib/libcupti.so.13",
        ],
        wheels = pins,
    )
