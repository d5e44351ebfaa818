"""Lists the files that tandem's repository rules download.

  bazel query --output=build //external:all | list_downloads.py

Prints one line a file: SHA256 FILENAME REPOSITORY.
"""

import collections
import sys


def _source_archive(name, filename, sha256, **_):
    print(sha256, filename, name)


def _debian_package(name, debian_package, debian_version, sha256, architecture="amd64", **_):
    print(sha256, "%s_%s_%s.deb" % (debian_package, debian_version, architecture), name)


def _wheels(name, wheels, **_):
    for filename, (_, _, sha256, *_) in wheels.items():
        print(sha256, filename, name)


def main():
    # Bazel prints rules as calls, which are Python too. Rules of other kinds
    # (a workspace's own, Bazel's) are none of ours.
    rules = collections.defaultdict(lambda: lambda **_: None)
    rules.update(source_archive=_source_archive, source_files=_source_archive, debian_package=_debian_package)
    rules.update(cuda_toolkit_repository=_wheels, wheels=_wheels)
    exec(sys.stdin.read(), rules)  # pylint: disable=exec-used


main()
