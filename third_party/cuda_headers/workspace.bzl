"""Headers of the CUDA 13.0 runtime, as in the wheels of the build of LibTorch."""

load("//third_party/fetch:repositories.bzl", "wheels")

def cuda_headers():
    wheels(
        name = "cuda_headers",
        build_file = Label("//third_party/cuda_headers:cuda_headers.BUILD"),
        members = ["nvidia/cu13/include/*"],
        wheels = {
            "nvidia_cuda_crt-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cuda-crt",
                "13.0.88",
                "2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4",
            ],
            "nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cuda-runtime",
                "13.0.96",
                "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
            ],
        },
    )
