"""Shared libraries that find each other when they run, of which a program links some.

NVIDIA's libraries load others by name, as they need them (cuDNN its engines, LibTorch its linear algebra), from the
folder in which they were found themselves. Bazel gives each cc_library a folder of links of its own; so all of them
are one target here. Linking them all would do, too, but each costs a program time at its start.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _library(ctx, toolchain, features, file, interface):
    # Under the plain name: libraries of several folders end in one.
    link = ctx.actions.declare_file("%s/%s" % (ctx.label.name, file.basename))
    ctx.actions.symlink(output = link, target_file = file)
    return cc_common.create_library_to_link(
        actions = ctx.actions,
        cc_toolchain = toolchain,
        dynamic_library = link,
        feature_configuration = features,
        interface_library = interface,
    )

def _shared_libraries(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(ctx = ctx, cc_toolchain = toolchain)
    libraries = [_library(ctx, toolchain, features, each, None) for each in ctx.files.linked]
    for each in ctx.files.loaded:
        # What the linker sees in place of the library; it lies beside the others all the same.
        libraries.append(_library(ctx, toolchain, features, each, ctx.file._nothing))
    return [
        DefaultInfo(files = depset([each.dynamic_library for each in libraries])),
        CcInfo(linking_context = cc_common.create_linking_context(
            linker_inputs = depset([
                cc_common.create_linker_input(owner = ctx.label, libraries = depset(libraries)),
            ]),
        )),
    ]

shared_libraries = rule(
    attrs = {
        "linked": attr.label_list(allow_files = True, doc = "what a program is linked with"),
        "loaded": attr.label_list(allow_files = True, doc = "what lies beside, for those to find"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_nothing": attr.label(allow_single_file = True, default = "//third_party/cuda:nothing.ifso"),
    },
    doc = "Shared libraries in one folder, of which a program is linked with some.",
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    implementation = _shared_libraries,
)
