"""PyPI as an origin of files: wheels, brought by pip."""

# pip takes a wheel only if one of these is its platform tag.
_PLATFORMS = [
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_25_x86_64",
    "manylinux_2_18_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
    "manylinux_2_12_x86_64",
]

def _bring(ctx, origin):
    place = "PyPI's package %s %s" % (origin.name, origin.version)
    folder = str(ctx.path(origin.folder))
    ctx.file(origin.folder + "/requirements.txt", "%s==%s --hash=sha256:%s\n" % (origin.name, origin.version, origin.sha256))
    command = ["python3", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--require-hashes", "--python-version=3.11"]
    command += ["--platform=" + platform for platform in _PLATFORMS]
    command += ["-r", folder + "/requirements.txt", "-d", folder + "/wheel"]
    result = ctx.execute(command, timeout = 3600)
    if result.return_code != 0:
        return struct(path = None, place = place, error = "%s: %s" % (place, result.stderr))
    return struct(path = ctx.path(origin.folder + "/wheel").readdir()[0], place = place, error = None)

def pypi_wheel(name, version, sha256):
    """Origin: the wheel of a Python package, for x86-64 Linux, whatever Python the machine has."""
    return struct(bring = _bring, folder = "_pypi", name = name, version = version, sha256 = sha256)
