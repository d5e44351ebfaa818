"""zsh 5.9, a shell, and its functions, so that tests of completion scripts run them."""

load("//third_party/fetch:repositories.bzl", "debian_package")

def zsh():
    debian_package(
        name = "zsh",
        build_file = Label("//third_party/zsh:zsh.BUILD"),
        debian_package = "zsh",
        debian_version = "5.9-4+b15",
        sha256 = "8362cc8bbb530d393950522dc8a9df5a860a61227d62ff669a7524056e6289a8",
    )

def zsh_common():
    debian_package(
        name = "zsh_common",
        architecture = "all",
        build_file = Label("//third_party/zsh:zsh_common.BUILD"),
        debian_package = "zsh-common",
        debian_version = "5.9-4",
        sha256 = "4f263aa88910f750965b1a83dcbca1355b2cf509acffe96cc2d856333909a7b5",
    )
