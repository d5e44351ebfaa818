"""LibTorch's CUDA libraries, and those of NVIDIA's that come with PyTorch's wheel and not with the CUDA Toolkit."""

load("//third_party/fetch:repositories.bzl", "wheels")
load("//third_party/libtorch:workspace.bzl", "TORCH_WHEEL")

def libtorch_cuda():
    pins = dict(TORCH_WHEEL)
    pins.update({
        "nvidia_cudnn_cu13-9.19.0.56-py3-none-manylinux_2_27_x86_64.whl": [
            "nvidia-cudnn-cu13",
            "9.19.0.56",
            "d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf",
        ],
        "nvidia_cusparselt_cu13-0.8.0-py3-none-manylinux2014_x86_64.whl": [
            "nvidia-cusparselt-cu13",
            "0.8.0",
            "25e30a8a7323935d4ad0340b95a0b69926eee755767e8e0b1cf8dd85b197d3fd",
        ],
        "nvidia_nccl_cu13-2.28.9-py3-none-manylinux_2_18_x86_64.whl": [
            "nvidia-nccl-cu13",
            "2.28.9",
            "e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42",
        ],
        "nvidia_nvshmem_cu13-3.4.5-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
            "nvidia-nvshmem-cu13",
            "3.4.5",
            "290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80",
        ],
    })
    wheels(
        name = "libtorch_cuda",
        build_file = Label("//third_party/libtorch_cuda:libtorch_cuda.BUILD"),
        members = [
            "torch/lib/libc10_cuda.so",
            "torch/lib/libcaffe2_nvrtc.so",
            "torch/lib/libtorch_cuda.so",
            "torch/lib/libtorch_cuda_linalg.so",
            "torch/lib/libtorch_nvshmem.so",
            "nvidia/cudnn/lib/*",
            "nvidia/cusparselt/lib/*",
            "nvidia/nccl/include/*",
            "nvidia/nccl/lib/*",
            "nvidia/nvshmem/lib/libnvshmem_host.so.3",
        ],
        wheels = pins,
    )
