"""The CUDA Toolkit 13.2.2, of which PyTorch's wheel is built: nvcc, headers, and the libraries that LibTorch loads."""

load("//third_party/cuda_toolkit:repository.bzl", "cuda_toolkit_repository")
load("//third_party/cuda_toolkit:shared_libraries.bzl", "SHARED_LIBRARIES")

def cuda_toolkit():
    cuda_toolkit_repository(
        name = "cuda_toolkit",
        build_file = Label("//third_party/cuda_toolkit:cuda_toolkit.BUILD"),
        members = [
            "nvidia/cu13/bin/*",
            "nvidia/cu13/include/*",
            "nvidia/cu13/nvvm/*",
        ] + ["nvidia/cu13/lib/" + each for each in SHARED_LIBRARIES],
        wheels = {
            "nvidia_cublas-13.4.1.3-py3-none-manylinux_2_27_x86_64.whl": [
                "nvidia-cublas",
                "13.4.1.3",
                "a5917cb642cfb07f4a0231ee16aec7e2e0357d8cb8b1b78a0c9c68dba3e6afc7",
                "lib/libcublasLt.so.13",
            ],
            "nvidia_cuda_cccl-13.2.86-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cuda-cccl",
                "13.2.86",
                "35da671cf0cecd3539da214a11bb8e7634366c9e950da9c5feecf6c490a65b20",
                "include/cccl/cuda/std/version",
            ],
            "nvidia_cuda_crt-13.2.86-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cuda-crt",
                "13.2.86",
                "e3ab08801bf9b1e6dc979275d25e816bb5000521b648e19c324d5eef0c79f1da",
                "include/crt/host_runtime.h",
            ],
            "nvidia_cuda_nvcc-13.2.86-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cuda-nvcc",
                "13.2.86",
                "7d3f56c8d705bad35bbba69eb0470d90856fd5d4dc48c6a6173aaf1e9f887cf5",
                "bin/nvcc",
            ],
            "nvidia_cuda_nvrtc-13.2.86-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl": [
                "nvidia-cuda-nvrtc",
                "13.2.86",
                "8111c5130e967b78222ea2124145f8efe9ce201b752b2579a2513100a53be1c5",
                "lib/libnvrtc.so.13",
            ],
            "nvidia_cuda_runtime-13.2.86-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cuda-runtime",
                "13.2.86",
                "3498247680dfddce31bad102af7e3e26fc795342a3cac64722bb0fa95e7f60f0",
                "include/cuda_runtime.h",
            ],
            "nvidia_cufft-12.2.0.57-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cufft",
                "12.2.0.57",
                "34da27fadf3979b0b042c43823f0530be8408b86df31ee0108e1ca0b621d4ef6",
                "lib/libcufft.so.12",
            ],
            "nvidia_cufile-1.17.1.22-py3-none-manylinux_2_27_x86_64.whl": [
                "nvidia-cufile",
                "1.17.1.22",
                "87feaf8c3ad20d3d03a01933181801ff6892bace5c8f0b1e4b48f319d3e62d36",
                "lib/libcufile.so.0",
            ],
            "nvidia_curand-10.4.2.66-py3-none-manylinux_2_27_x86_64.whl": [
                "nvidia-curand",
                "10.4.2.66",
                "9bb3796a2f6223454b2e326e3d7572c1500cfa4d629de827676b4eeecd30ab0c",
                "lib/libcurand.so.10",
            ],
            "nvidia_cusolver-12.2.0.11-py3-none-manylinux_2_27_x86_64.whl": [
                "nvidia-cusolver",
                "12.2.0.11",
                "fab5778f6769947389a1a6abc07e635576825a08c0ffc68c3ae7f1392c794b42",
                "lib/libcusolver.so.12",
            ],
            "nvidia_cusparse-12.7.10.12-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cusparse",
                "12.7.10.12",
                "25907c75e4db1581685f06f61cc6cdecc04611765516a52373e0a18ebd69fa00",
                "lib/libcusparse.so.12",
            ],
            "nvidia_nvjitlink-13.2.86-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl": [
                "nvidia-nvjitlink",
                "13.2.86",
                "285a9cead9924391588d794400bdd7e8f9d1a277a7d78ed79acfa0ea702a14dd",
                "lib/libnvJitLink.so.13",
            ],
            "nvidia_nvvm-13.2.86-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl": [
                "nvidia-nvvm",
                "13.2.86",
                "a9244f3209922d655612c11ebb4117ea1f80983cb2b215c9cccded127282cebc",
                "nvvm/bin/cicc",
            ],
        },
    )
