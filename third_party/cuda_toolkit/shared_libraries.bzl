"""What LibTorch's CUDA libraries load of the toolkit."""

# But for the runtime and CUPTI, which @libtorch has in every build.
SHARED_LIBRARIES = [
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcufft.so.12",
    "libcufile.so.0",
    "libcurand.so.10",
    "libcusolver.so.12",
    "libcusparse.so.12",
    "libnvJitLink.so.13",
    "libnvrtc-builtins.so.13.*",
    "libnvrtc.so.13",
]
