"""nlohmann_json 3.11.2."""

load("//third_party/fetch:repositories.bzl", "source_archive")

def nlohmann_json():
    source_archive(
        name = "nlohmann_json",
        build_file = Label("//third_party/nlohmann_json:nlohmann_json.BUILD"),
        debian_package = "nlohmann-json3",
        debian_version = "3.11.2-2",
        filename = "nlohmann-json3_3.11.2.orig.tar.gz",
        sha256 = "d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273",
        strip_prefix = "json-3.11.2",
        urls = ["https://github.com/nlohmann/json/archive/v3.11.2.tar.gz"],
    )
