"""Fashion-MNIST (Xiao, Rasul, Vollgraf, 2017; MIT licence): four gzipped IDX files."""

load("//third_party/fetch:repositories.bzl", "debian_package")

def fashion_mnist():
    debian_package(
        name = "fashion_mnist",
        architecture = "all",
        build_file = Label("//third_party/fashion_mnist:fashion_mnist.BUILD"),
        debian_package = "dataset-fashion-mnist",
        debian_version = "0.0~git20200523.55506a9-1",
        sha256 = "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
    )
