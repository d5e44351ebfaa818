"""libjpeg-turbo 2.1.5, as Debian packs it."""

load("//third_party/fetch:repositories.bzl", "source_archive")

def libjpeg_turbo():
    source_archive(
        name = "libjpeg_turbo",
        build_file = Label("//third_party/libjpeg_turbo:libjpeg_turbo.BUILD"),
        debian_package = "libjpeg-turbo",
        debian_version = "1:2.1.5-2",
        filename = "libjpeg-turbo_2.1.5.orig.tar.gz",
        sha256 = "254f3642b04e309fee775123133c6464181addc150499561020312ec61c1bf7c",
        strip_prefix = "libjpeg-turbo-2.1.5",
    )
