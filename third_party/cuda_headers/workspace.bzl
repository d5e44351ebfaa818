"""Headers of the CUDA 13.2 runtime, as in the wheels of the build of LibTorch."""

load("//third_party/fetch:repositories.bzl", "wheels")

def cuda_headers():
    wheels(
        name = "cuda_headers",
        build_file = Label("//third_party/cuda_headers:cuda_headers.BUILD"),
        members = ["nvidia/cu13/include/*"],
        wheels = {
            "nvidia_cuda_crt-13.2.86-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cuda-crt",
                "13.2.86",
                "e3ab08801bf9b1e6dc979275d25e816bb5000521b648e19c324d5eef0c79f1da",
            ],
            "nvidia_cuda_runtime-13.2.86-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cuda-runtime",
                "13.2.86",
                "3498247680dfddce31bad102af7e3e26fc795342a3cac64722bb0fa95e7f60f0",
            ],
        },
    )
