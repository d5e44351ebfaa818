"""The CUDA Toolkit 13.0.2, of which PyTorch's wheel is built: nvcc, headers, and the libraries that LibTorch loads."""

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
            "nvidia_cublas-13.1.0.3-py3-none-manylinux_2_27_x86_64.whl": [
                "nvidia-cublas",
                "13.1.0.3",
                "ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171",
                "lib/libcublasLt.so.13",
            ],
            "nvidia_cuda_cccl-13.0.85-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cuda-cccl",
                "13.0.85",
                "e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649",
                "include/cccl/cuda/std/version",
            ],
            "nvidia_cuda_crt-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cuda-crt",
                "13.0.88",
                "2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4",
                "include/crt/host_runtime.h",
            ],
            "nvidia_cuda_nvcc-13.0.88-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cuda-nvcc",
                "13.0.88",
                "56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03",
                "bin/nvcc",
            ],
            "nvidia_cuda_nvrtc-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl": [
                "nvidia-cuda-nvrtc",
                "13.0.88",
                "ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575",
                "lib/libnvrtc.so.13",
            ],
            "nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cuda-runtime",
                "13.0.96",
                "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
                "include/cuda_runtime.h",
            ],
            "nvidia_cufft-12.0.0.61-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cufft",
                "12.0.0.61",
                "6c44f692dce8fd5ffd3e3df134b6cdb9c2f72d99cf40b62c32dde45eea9ddad3",
                "lib/libcufft.so.12",
            ],
            "nvidia_cufile-1.15.1.6-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cufile",
                "1.15.1.6",
                "08a3ecefae5a01c7f5117351c64f17c7c62efa5fffdbe24fc7d298da19cd0b44",
                "lib/libcufile.so.0",
            ],
            "nvidia_curand-10.4.0.35-py3-none-manylinux_2_27_x86_64.whl": [
                "nvidia-curand",
                "10.4.0.35",
                "1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc",
                "lib/libcurand.so.10",
            ],
            "nvidia_cusolver-12.0.4.66-py3-none-manylinux_2_27_x86_64.whl": [
                "nvidia-cusolver",
                "12.0.4.66",
                "0a759da5dea5c0ea10fd307de75cdeb59e7ea4fcb8add0924859b944babf1112",
                "lib/libcusolver.so.12",
            ],
            "nvidia_cusparse-12.6.3.3-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": [
                "nvidia-cusparse",
                "12.6.3.3",
                "2b3c89c88d01ee0e477cb7f82ef60a11a4bcd57b6b87c33f789350b59759360b",
                "lib/libcusparse.so.12",
            ],
            "nvidia_nvjitlink-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl": [
                "nvidia-nvjitlink",
                "13.0.88",
                "13a74f429e23b921c1109976abefacc69835f2f433ebd323d3946e11d804e47b",
                "lib/libnvJitLink.so.13",
            ],
            "nvidia_nvvm-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl": [
                "nvidia-nvvm",
                "13.0.88",
                "c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0",
                "nvvm/bin/cicc",
            ],
        },
    )
