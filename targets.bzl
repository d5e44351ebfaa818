"""Libraries and tests of this workspace, each written down in a line or two."""

load("@compiler//:kind.bzl", "IS_CLANG")
load("//tests:suites.bzl", "NIGHTLY", "smoke_test")
load("//third_party/precompiled:precompiled_header.bzl", "precompiled_copts")

# What dependencies are called here; "absl/strings" is Abseil's target of that path.
_DEPENDENCIES = {
    "cuda": "@cuda_toolkit//:headers",
    "cuda_headers": "@cuda_headers//:cuda_headers",
    "glog": "@com_github_google_glog//:glog",
    "gtest": "@com_google_googletest//:gtest",
    "gtest_main": "@com_google_googletest//:gtest_main",
    "json": "@nlohmann_json//:json",
    "nccl": "@libtorch_cuda//:nccl_headers",
    "torch": "@libtorch//:torch",
}

# What is ABSL_GUARDED_BY a mutex is touched with it alone.
_COPTS = ["-Wthread-safety"] if IS_CLANG else []

def _labels(deps):
    return [
        "@com_google_absl//" + dep if dep.startswith("absl/") else _DEPENDENCIES.get(dep, dep)
        for dep in deps
    ]

def _path_in_workspace(file):
    """As an #include has it, whether or not another workspace has this one as a dependency."""
    path = file.short_path
    return path.split("/", 2)[2] if path.startswith("../") else path

def _translation_unit_impl(ctx):
    unit = ctx.actions.declare_file(ctx.label.name + ".cc")
    ctx.actions.write(unit, "".join(["#include \"%s\"\n" % _path_in_workspace(each) for each in ctx.files.srcs]))
    return [DefaultInfo(files = depset([unit]))]

_translation_unit = rule(
    attrs = {"srcs": attr.label_list(allow_files = [".cc"])},
    doc = "A C++ file that includes others.",
    implementation = _translation_unit_impl,
)

def _joined(name, attributes):
    """Siblings are compiled as one file: what they share is parsed and instantiated once (docs/contributing.md)."""
    siblings = [src for src in attributes["srcs"] if src.endswith(".cc")]
    if len(siblings) < 2:
        return attributes
    _translation_unit(name = name + "_unit", srcs = siblings)
    attributes["srcs"] = [":" + name + "_unit"] + [src for src in attributes["srcs"] if src not in siblings]
    attributes["textual_hdrs"] = attributes.get("textual_hdrs", []) + siblings
    return attributes

def _with_cuda(attributes):
    """Adds what a target has under --config=cuda alone: dependencies, and TANDEM_CUDA for its own files."""
    cuda_deps = attributes.pop("cuda_deps", None)
    if cuda_deps == None:
        return attributes
    enabled = str(Label("//third_party/cuda:enabled"))
    attributes["deps"] = attributes["deps"] + select({
        enabled: _labels(cuda_deps),
        "//conditions:default": [],
    })
    attributes["local_defines"] = attributes.get("local_defines", []) + select({
        enabled: ["TANDEM_CUDA=1"],
        "//conditions:default": [],
    })
    return attributes

def _compiled(name, deps, attributes):
    """The attributes of a target whose source is NAME.cc if it names none, and which has a precompiled header.

    That is, by `precompiled`, one of //third_party/precompiled (docs/contributing.md); unless it is said, the
    operators' for what depends on LibTorch, else the standard library's and Abseil's. Tests have theirs, with GoogleTest.
    """
    attributes["deps"] = _labels(deps)
    if "srcs" not in attributes:
        attributes["srcs"] = native.glob([name + ".cc"])
    precompiled = attributes.pop("precompiled", "operators" if "torch" in deps else "standard")
    if (native.package_name() + "/").startswith("tests/"):
        precompiled += "_test"
    if attributes["srcs"]:
        attributes["copts"] = precompiled_copts(precompiled) + _COPTS + attributes.get("copts", [])
        attributes["deps"] = attributes["deps"] + [str(Label("//third_party/precompiled:" + precompiled))]
    return _with_cuda(attributes)

def tandem_library(name, deps = [], public = False, **attributes):
    """A cc_library of NAME.h and, where there is one, NAME.cc.

    Args:
      name: its name, and the stem of its files.
      deps: labels; dependencies by their short names.
      public: whether other workspaces and floors may use it; else the package's default decides.
      **attributes: cc_library's, `precompiled`, and `cuda_deps`: labels, and a compilation with TANDEM_CUDA, that are the
        target's under --config=cuda alone.
    """
    if "hdrs" not in attributes:
        attributes["hdrs"] = [name + ".h"]
    if public:
        attributes["visibility"] = ["//visibility:public"]
    native.cc_library(name = name, **_joined(name, _compiled(name, deps, attributes)))

def tandem_test(name, deps = [], nightly = False, smoke = None, main = "gtest_main", **attributes):
    """A cc_test of NAME.cc, with GoogleTest's main.

    Args:
      name: its name, and the stem of its file.
      deps: labels; dependencies by their short names.
      nightly: whether it is in //tests:full alone, not in what `bazel test //...` runs (docs/contributing.md).
      smoke: GoogleTest's filter of the tests that `bazel test //...` runs all the same, as NAME_smoke; the whole program
        is nightly then.
      main: the library that has its main.
      **attributes: cc_test's, `precompiled`, and `cuda_deps`: labels, and a compilation with TANDEM_CUDA, that are the
        target's under --config=cuda alone.
    """
    if smoke:
        smoke_test(name, smoke, attributes)
    if nightly or smoke:
        attributes["tags"] = attributes.get("tags", []) + NIGHTLY
    native.cc_test(name = name, **_compiled(name, deps + [main], attributes))

def tandem_tests(name, units, deps = [], precompiled = None, **attributes):
    """One test program of several files, each with the tests of one header.

    A program costs a link and a start, and a file what it includes: so the tests of a room are one program, and several
    files are compiled as one (tests/README.md). The names of a file stand in a namespace that is named after it. What
    changes the process (its environment, its signal handlers, how it may fork) is a tandem_test of its own.

    Args:
      name: its name.
      units: lists of files; those of one list, of about 900 lines together at most, are compiled as one.
      deps: labels, of any file; dependencies by their short names.
      precompiled: as tandem_test's.
      **attributes: tandem_test's, but those of the compilation.
    """
    cases = []
    for number, unit in enumerate(units):
        cases.append("%s_%d" % (name, number + 1))
        tandem_library(
            name = cases[-1],
            testonly = True,
            srcs = unit,
            hdrs = [],
            # Nothing refers to a test.
            alwayslink = True,
            linkstatic = True,
            deps = deps + ["gtest"],
            visibility = ["//visibility:private"],
            **({"precompiled": precompiled} if precompiled else {})
        )
    tandem_test(name = name, srcs = [], deps = [":" + each for each in cases], **attributes)

def tandem_fuzz_test(name, deps = [], **attributes):
    """A cc_test of NAME.cc, which defines LLVMFuzzerTestOneInput, on the files of corpus/FORMAT; NAME is FORMAT_fuzz_test.

    Under --config=fuzz it is libFuzzer's program (tests/fuzz/BUILD), which tools/fuzz.sh runs for longer.

    Args:
      name: its name, and the stem of its file.
      deps: labels; dependencies by their short names.
      **attributes: cc_test's, `precompiled`, and `nightly` as tandem_test has it.
    """
    corpus = "corpus/" + name[:-len("_fuzz_test")]
    folder = native.package_name() + "/" + corpus
    enabled = str(Label("//tests/fuzz:enabled"))
    main = str(Label("//tests/fuzz:corpus_main"))
    if attributes.pop("nightly", False):
        attributes["tags"] = attributes.get("tags", []) + NIGHTLY
    attributes = _compiled(name, deps, attributes)
    attributes["deps"] = attributes["deps"] + select({
        enabled: [],
        "//conditions:default": [main],
    })
    native.cc_test(
        name = name,
        args = select({
            enabled: ["-runs=0", folder],
            "//conditions:default": [folder],
        }),
        data = native.glob([corpus + "/*"]),
        linkopts = select({
            enabled: ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        **attributes
    )

def tandem_binary(name, deps = [], **attributes):
    """A cc_binary of NAME.cc.

    Args:
      name: its name, and the stem of its file.
      deps: labels; dependencies by their short names.
      **attributes: cc_binary's, `precompiled`, and `cuda_deps`: labels, and a compilation with TANDEM_CUDA, that are the
        target's under --config=cuda alone.
    """
    native.cc_binary(name = name, **_compiled(name, deps, attributes))
