"""LevelDB 1.23, as Debian packs it: its CRC-32C, which TensorFlow's records have."""

load("//third_party/fetch:repositories.bzl", "source_archive")

def leveldb():
    source_archive(
        name = "leveldb",
        build_file = Label("//third_party/leveldb:leveldb.BUILD"),
        debian_package = "leveldb",
        debian_version = "1.23-4",
        filename = "leveldb_1.23.orig.tar.gz",
        sha256 = "9a37f8a6174f09bd622bc723b55881dc541cd50747cbd08831c2a82d620f6d76",
        strip_prefix = "leveldb-1.23",
    )
