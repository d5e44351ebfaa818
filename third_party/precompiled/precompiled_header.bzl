"""A precompiled header (GCC's .gch, Clang's .pch), made by the C++ toolchain with the flags of every other file.

GCC and Clang take it in place of the header that -include names, if the two were compiled alike; it lies in
Bazel's output tree beside a header of the same text, which any other compiler reads instead.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@compiler//:kind.bzl", "IS_CLANG")

_GCC = struct(ending = ".gch", flags = [])

# Clang's file names what went into it by absolute paths and times, unless told otherwise: it would be another in each
# checkout, and so would all that is compiled with it.
_CLANG = struct(
    ending = ".pch",
    flags = [
        "-fpch-instantiate-templates",
        "-Xclang",
        "-fno-pch-timestamp",
        "-Xclang",
        "-relocatable-pch",
        "-isysroot",
        "/proc/self/cwd",
    ],
)

def _compiler(features):
    return cc_common.get_tool_for_action(
        action_name = CPP_COMPILE_ACTION_NAME,
        feature_configuration = features,
    )

def _kind(ctx, features):
    """What the compiler's precompiled headers are; None of a compiler that has none, or others."""

    # The toolchain that Bazel finds by itself does not say which compiler it is.
    name = _compiler(features).split("/")[-1]
    if IS_CLANG:
        return _CLANG if name.startswith("clang") else None
    return _GCC if name.startswith(("gcc", "g++")) else None

def _compile(ctx, toolchain, features, kind, header, context):
    precompiled = ctx.actions.declare_file(header.basename + kind.ending)
    variables = cc_common.create_compile_variables(
        cc_toolchain = toolchain,
        feature_configuration = features,
        include_directories = context.includes,
        output_file = precompiled.path,
        preprocessor_defines = context.defines,
        quote_include_directories = context.quote_includes,
        source_file = header.path,
        system_include_directories = context.system_includes,
        use_pic = True,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts,
    )
    ctx.actions.run(
        outputs = [precompiled],
        inputs = depset([header, ctx.file._system_headers], transitive = [context.headers, toolchain.all_files]),
        executable = _compiler(features),
        arguments = ["-x", "c++-header"] + kind.flags + cc_common.get_memory_inefficient_command_line(
            action_name = CPP_COMPILE_ACTION_NAME,
            feature_configuration = features,
            variables = variables,
        ),
        # As Bazel does for C++ files: the folder by a name that is the same everywhere.
        env = dict(cc_common.get_environment_variables(
            action_name = CPP_COMPILE_ACTION_NAME,
            feature_configuration = features,
            variables = variables,
        ), PWD = "/proc/self/cwd"),
        mnemonic = "CppPrecompiledHeader",
        progress_message = "Precompiling %s" % header.short_path,
    )
    return precompiled

def _precompiled_header(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.write(header, "".join(["#include \"%s\"\n" % each for each in ctx.attr.headers]))
    files = [header]
    kind = _kind(ctx, features)
    if kind:
        files.append(_compile(ctx, toolchain, features, kind, header, context))
    own = cc_common.create_compilation_context(headers = depset(files))
    return [
        DefaultInfo(files = depset(files)),
        # Nothing to link: what a file uses of these headers, its target depends on.
        cc_common.merge_cc_infos(
            cc_infos = [CcInfo(compilation_context = each) for each in [own, context]],
        ),
    ]

precompiled_header = rule(
    attrs = {
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "headers": attr.string_list(mandatory = True),
        "_system_headers": attr.label(allow_single_file = True, default = "@compiler//:system_headers"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    doc = "A header that includes `headers`, and its precompiled form, for those who depend on it and compile with " +
          "precompiled_copts(NAME) and `copts`.",
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    implementation = _precompiled_header,
)

def precompiled_copts(name):
    """What compiles a file with //third_party/precompiled:NAME. One that does not fit is an error, not a slow build."""
    header = "third_party/precompiled/%s.h" % name
    root = Label("//third_party/precompiled").workspace_root
    if IS_CLANG:
        # Which looks for a precompiled header by its path alone, and for what went into it below this folder.
        return ["-include", "/".join(["$(BINDIR)"] + ([root] if root else []) + [header]), "-isysroot", "."]
    return ["-include", header, "-Winvalid-pch"]
