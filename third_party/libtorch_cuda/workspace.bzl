"""LibTorch's CUDA libraries, and those of NVIDIA's that come with PyTorch's wheel and not with the CUDA Toolkit."""

load("//third_party/fetch:repositories.bzl", "wheels")
load("//third_party/libtorch:workspace.bzl", "TORCH_WHEEL")

def libtorch_cuda():
    pins = dict(TORCH_WHEEL)
    pins.update({
        "nvidia_cudnn_cu13-9.26.0.51-py3-none-manylinux_2_27_x86_64.whl": [
            "nvidia-cudnn-cu13",
            "9.26.0.51",
            "9c976d539786698c71d6bcdbe2053b7485fae062ff7e1215d2f2ff67b1a2149a",
        ],
        "nvidia_cusparselt_cu13-0.8.1-py3-none-manylinux2014_x86_64.whl": [
            "nvidia-cusparselt-cu13",
            "0.8.1",
            "786ce87568c303fadb5afcc7102d454cd3040d75f6f8626f5db460d1871f4dd0",
        ],
        "nvidia_nccl_cu13-2.30.7-py3-none-manylinux_2_18_x86_64.whl": [
            "nvidia-nccl-cu13",
            "2.30.7",
            "cefa7fdb9710efd0f39c5f1be1d61ff6fc9a996c451265bd7fbdcf9455ed4b50",
        ],
        "nvidia_nvshmem_cu13-3.7.2-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
            "nvidia-nvshmem-cu13",
            "3.7.2",
            "b9a4f843c62b5dded8ad33fd6d220e007dcd39f06cee549292f5ba14ce4c235c",
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
