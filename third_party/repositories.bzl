"""Everything that tandem needs from elsewhere, pinned."""

load("//third_party/abseil:workspace.bzl", "abseil")
load("//third_party/bazel_skylib:workspace.bzl", "bazel_skylib")
load("//third_party/benchmark:workspace.bzl", "benchmark")
load("//third_party/clang_format:workspace.bzl", "clang_format")
load("//third_party/compiler:workspace.bzl", "compiler")
load("//third_party/cuda_headers:workspace.bzl", "cuda_headers")
load("//third_party/cuda_toolkit:workspace.bzl", "cuda_toolkit")
load("//third_party/fashion_mnist:workspace.bzl", "fashion_mnist")
load("//third_party/gflags:workspace.bzl", "gflags")
load("//third_party/glog:workspace.bzl", "glog")
load("//third_party/gloo:workspace.bzl", "gloo")
load("//third_party/googletest:workspace.bzl", "googletest")
load("//third_party/gpt2_tokenizer:workspace.bzl", "gpt2_tokenizer")
load("//third_party/king_james_bible:workspace.bzl", "king_james_bible")
load("//third_party/leveldb:workspace.bzl", "leveldb")
load("//third_party/libdeflate:workspace.bzl", "libdeflate")
load("//third_party/libjpeg_turbo:workspace.bzl", "libjpeg_turbo")
load("//third_party/libpng:workspace.bzl", "libpng")
load("//third_party/libtorch:workspace.bzl", "libtorch")
load("//third_party/libtorch_cuda:workspace.bzl", "libtorch_cuda")
load("//third_party/mistral_tokenizer:workspace.bzl", "mistral_tokenizer")
load("//third_party/nlohmann_json:workspace.bzl", "nlohmann_json")
load("//third_party/pcre2:workspace.bzl", "pcre2")
load("//third_party/peft:workspace.bzl", "peft")
load("//third_party/platforms:workspace.bzl", "platforms")
load("//third_party/protozero:workspace.bzl", "protozero")
load("//third_party/pytorch_tests:workspace.bzl", "pytorch_tests")
load("//third_party/remote_coverage_tools:workspace.bzl", "remote_coverage_tools")
load("//third_party/rules_cc:workspace.bzl", "rules_cc")
load("//third_party/rules_java:workspace.bzl", "rules_java")
load("//third_party/sentencepiece:workspace.bzl", "sentencepiece")
load("//third_party/tensorboard:workspace.bzl", "tensorboard")
load("//third_party/zlib:workspace.bzl", "zlib")
load("//third_party/zsh:workspace.bzl", "zsh", "zsh_common")
load("//third_party/zstd:workspace.bzl", "zstd")

_REPOSITORIES = {
    "bazel_skylib": bazel_skylib,
    "clang_format": clang_format,
    "com_github_gflags_gflags": gflags,
    "com_github_google_benchmark": benchmark,
    "com_github_google_glog": glog,
    "com_google_absl": abseil,
    "com_google_googletest": googletest,
    "compiler": compiler,
    "cuda_headers": cuda_headers,
    "cuda_toolkit": cuda_toolkit,
    "fashion_mnist": fashion_mnist,
    "gloo": gloo,
    "gpt2_tokenizer": gpt2_tokenizer,
    "king_james_bible": king_james_bible,
    "leveldb": leveldb,
    "libdeflate": libdeflate,
    "libjpeg_turbo": libjpeg_turbo,
    "libpng": libpng,
    "libtorch": libtorch,
    "libtorch_cuda": libtorch_cuda,
    "mistral_tokenizer": mistral_tokenizer,
    "nlohmann_json": nlohmann_json,
    "pcre2": pcre2,
    "peft": peft,
    "platforms": platforms,
    "protozero": protozero,
    "pytorch_tests": pytorch_tests,
    "remote_coverage_tools": remote_coverage_tools,
    "rules_cc": rules_cc,
    "rules_java": rules_java,
    "sentencepiece": sentencepiece,
    "tensorboard": tensorboard,
    "zlib": zlib,
    "zsh": zsh,
    "zsh_common": zsh_common,
    "zstd": zstd,
}

def tandem_dependencies():
    """Declares each repository that the workspace has not declared before this call."""
    for name, declare in _REPOSITORIES.items():
        if not native.existing_rule(name):
            declare()
