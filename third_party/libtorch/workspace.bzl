"""LibTorch 2.11.0: the headers and CPU libraries of PyTorch's wheel (CUDA 13.0 build, C++11 ABI)."""

load("//third_party/fetch:repositories.bzl", "wheels")

# Of which //third_party/libtorch_cuda takes other files.
TORCH_WHEEL = {
    "torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl": [
        "torch",
        "2.11.0",
        "7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a",
    ],
}

def libtorch():
    pins = {
        "nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_x86_64.whl": [
            "nvidia-cuda-cupti",
            "13.0.85",
            "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
        ],
        "nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
            "nvidia-cuda-runtime",
            "13.0.96",
            "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
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
