"""Repository rule for the machine's C++ compiler, as a file that actions depend on."""

def _compiler_impl(ctx):
    name = ctx.os.environ.get("CC") or "gcc"
    driver = ctx.which(name) if "/" not in name else ctx.path(name)
    if not driver or not driver.exists:
        fail("\n\ncompiler: %s is not here. tools/setup.sh installs Clang and GCC. In tandem's workspace --config=gcc takes GCC; in others CC names the compiler.\n" % name)

    # What GCC's driver runs for C++; Clang's driver is the compiler, and names no other.
    said = ctx.execute([driver, "-print-prog-name=cc1plus"]).stdout.strip()
    ctx.symlink(said if said.startswith("/") and ctx.path(said).exists else driver.realpath, "compiler")
    ctx.file("BUILD", "exports_files([\"compiler\"])\n")
    is_clang = "clang version" in ctx.execute([driver, "--version"]).stdout
    ctx.file("kind.bzl", "\"\"\"Which compiler it is.\"\"\"\n\nIS_CLANG = %s\n" % is_clang)

compiler_repository = repository_rule(
    implementation = _compiler_impl,
    doc = "A link to the compiler itself (cc1plus of GCC, clang), and kind.bzl, which says whether it is Clang.",
    configure = True,
    environ = ["CC"],
    local = True,
)
