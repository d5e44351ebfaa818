"""Repository rule for the CUDA Toolkit: NVIDIA's wheels, or the machine's own toolkit."""

load("//third_party/fetch:fetch.bzl", "FETCH_ENVIRON")
load("//third_party/fetch:repositories.bzl", "add_build_file", "unpack_wheel")

_TOOLKIT = "TANDEM_CUDA_TOOLKIT"

def _refuse(folder, what):
    fail(("\n\ncuda_toolkit: %s is %s, %s. Name the folder of a CUDA Toolkit 13 (that has bin/nvcc), or leave it out: " +
          "the build then fetches NVIDIA's wheels (docs/rehearsal.md).\n") % (_TOOLKIT, folder, what))

def _machines_toolkit(ctx):
    """The path of the machine's toolkit, linked to as toolkit/; None where none is named."""
    folder = ctx.os.environ.get(_TOOLKIT, "")
    if not folder:
        return None
    if not folder.startswith("/") or not ctx.path(folder + "/bin/nvcc").exists:
        _refuse(folder, "where there is no bin/nvcc")
    version = ctx.execute([folder + "/bin/nvcc", "--version"])
    if "release 13." not in version.stdout:
        _refuse(folder, "whose nvcc is not one of CUDA 13, of which LibTorch is built: " + version.stdout.strip())
    for part in ["bin", "include", "nvvm"]:
        ctx.symlink(folder + "/" + part, "toolkit/" + part)
    ctx.symlink(folder + ("/lib64" if ctx.path(folder + "/lib64").exists else "/lib"), "toolkit/lib")
    return ctx.path("toolkit")

def _cuda_toolkit_impl(ctx):
    toolkit = _machines_toolkit(ctx)
    for filename, pin in ctx.attr.wheels.items():
        if toolkit and ctx.path("%s/%s" % (toolkit, pin[3])).exists:
            continue
        unpack_wheel(ctx, filename, pin[:3], ctx.attr.members)
    add_build_file(ctx)

cuda_toolkit_repository = repository_rule(
    implementation = _cuda_toolkit_impl,
    doc = "NVIDIA's wheels; with TANDEM_CUDA_TOOLKIT=/FOLDER that toolkit, and the wheels of what it lacks.",
    attrs = {
        "build_file": attr.label(mandatory = True),
        "members": attr.string_list(doc = "glob patterns of what to unpack"),
        "wheels": attr.string_list_dict(doc = "file name -> [package, version, sha256, a file of it in a toolkit]"),
    },
    environ = FETCH_ENVIRON + [_TOOLKIT],
)
