"""Unpacks the members of a wheel that match any of the given patterns into the current folder.

  unpack_wheel.py WHEEL PATTERN...
"""

import fnmatch
import os
import sys
import zipfile


def main():
    wheel, patterns = sys.argv[1], sys.argv[2:]
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            if info.is_dir() or not any(fnmatch.fnmatch(info.filename, p) for p in patterns):
                continue
            path = archive.extract(info)
            os.chmod(path, (info.external_attr >> 16) & 0o777 | 0o444)


main()
