"""CUDA kernels: .cu files, compiled by nvcc with the C++ toolchain's compiler for what runs on the host."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

# A100, H100 and H200, and both families of Blackwell: machine code, since a driver of an older CUDA 13 refuses PTX of
# this one. Newer GPUs: the driver compiles the PTX of the last.
_ARCHITECTURES = [
    "arch=compute_80,code=sm_80",
    "arch=compute_90,code=sm_90",
    "arch=compute_100,code=sm_100",
    "arch=compute_120,code=sm_120",
    "arch=compute_120,code=compute_120",
]

_HOST_WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]

def _compile(ctx, toolchain, features, context, source):
    object = ctx.actions.declare_file("_nvcc/%s/%s.pic.o" % (ctx.label.name, source.basename))
    host = cc_common.get_tool_for_action(action_name = CPP_COMPILE_ACTION_NAME, feature_configuration = features)
    arguments = ctx.actions.args()
    arguments.add_all(["-ccbin", host, "-std=c++20", "-O3", "-DNDEBUG", "-c", source, "-o", object])
    # Beside the object: nvcc names them by its process number, which in Bazel's sandbox is 2 for all, who share /tmp.
    arguments.add("--objdir-as-tempdir")
    arguments.add_all(_ARCHITECTURES, before_each = "-gencode")
    arguments.add("-Werror=all-warnings")
    if ctx.var.get("tandem_cuda_usage"):
        # Registers and spills of each kernel, in the build's log: --define=tandem_cuda_usage=1.
        arguments.add("--resource-usage")
    for flag in ["-fPIC", "-fno-omit-frame-pointer"] + _HOST_WARNINGS:
        arguments.add("-Xcompiler=" + flag)
    arguments.add_all(context.defines, before_each = "-D")
    arguments.add_all(context.quote_includes, before_each = "-I")
    arguments.add_all(depset(transitive = [context.includes, context.system_includes]), before_each = "-isystem")
    arguments.add_all(ctx.attr.copts)
    ctx.actions.run(
        outputs = [object],
        inputs = depset(
            [source] + ctx.files.hdrs,
            transitive = [context.headers, toolchain.all_files, depset(ctx.files._compiler)],
        ),
        executable = ctx.file._nvcc,
        arguments = [arguments],
        # nvcc asks for the host compiler's tools by name.
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        mnemonic = "CudaCompile",
        progress_message = "Compiling %s with nvcc" % source.short_path,
    )
    return object

def _cuda_library(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(ctx = ctx, cc_toolchain = toolchain)
    infos = [each[CcInfo] for each in ctx.attr.deps + [ctx.attr._headers]]
    merged = cc_common.merge_cc_infos(cc_infos = infos)
    objects = [_compile(ctx, toolchain, features, merged.compilation_context, each) for each in ctx.files.srcs]
    linking, _ = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        cc_toolchain = toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(
            objects = depset(objects),
            pic_objects = depset(objects),
        ),
        feature_configuration = features,
        linking_contexts = [each.linking_context for each in infos],
        name = ctx.label.name,
    )
    own = cc_common.create_compilation_context(headers = depset(ctx.files.hdrs))
    return [
        DefaultInfo(files = depset(objects)),
        CcInfo(
            compilation_context = cc_common.merge_cc_infos(
                cc_infos = [CcInfo(compilation_context = each) for each in [own, merged.compilation_context]],
            ).compilation_context,
            linking_context = linking,
        ),
    ]

_cuda_library_rule = rule(
    attrs = {
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "srcs": attr.label_list(allow_files = [".cu"], mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_compiler": attr.label(default = "@cuda_toolkit//:compiler"),
        "_headers": attr.label(default = "@cuda_toolkit//:headers"),
        "_nvcc": attr.label(allow_single_file = True, default = "@cuda_toolkit//:nvcc"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    implementation = _cuda_library,
)

def cuda_library(name, **attributes):
    """A library of CUDA kernels, NAME.cu with NAME.h unless it says otherwise. Its headers are for host code, too.

    Warnings of nvcc and of the host's compiler are errors. It needs the CUDA Toolkit, so it is "manual": //... leaves
    it out, and what depends on it does so under --config=cuda alone (tandem_library's cuda_deps).

    Args:
      name: its name, and the stem of its files.
      **attributes: srcs, hdrs, deps, copts, visibility.
    """
    _cuda_library_rule(
        name = name,
        srcs = attributes.pop("srcs", [name + ".cu"]),
        hdrs = attributes.pop("hdrs", [name + ".h"]),
        tags = attributes.pop("tags", []) + ["manual"],
        **attributes
    )
