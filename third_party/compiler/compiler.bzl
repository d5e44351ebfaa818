"""Repository rule for the machine's C++ compiler, as a file that actions depend on."""

# Headers of the C and C++ libraries and of the kernel, not those of other packages.
_SIZES = """
cd /usr/include && find -L . -maxdepth 1 -name '*.h' -printf '%p %s\\n' | LC_ALL=C sort
find -L linux asm-generic c++ */asm */bits */gnu */sys */c++ -type f -printf '%p %s\\n' 2>/dev/null | LC_ALL=C sort
"""

def _compiler_impl(ctx):
    name = ctx.os.environ.get("CC") or "gcc"
    driver = ctx.which(name) if "/" not in name else ctx.path(name)
    if not driver or not driver.exists:
        fail("\n\ncompiler: %s is not here. tools/setup.sh installs Clang and GCC. In tandem's workspace --config=gcc takes GCC; in others CC names the compiler.\n" % name)

    # What GCC's driver runs for C++; Clang's driver is the compiler, and names no other.
    said = ctx.execute([driver, "-print-prog-name=cc1plus"]).stdout.strip()
    ctx.symlink(said if said.startswith("/") and ctx.path(said).exists else driver.realpath, "compiler")
    ctx.file("BUILD", "exports_files([\"compiler\", \"system_headers\"])\n")

    # Sizes of what precompiled headers are made of that is no target's: Clang refuses one when such a file has another.
    sizes = ctx.execute(["sh", "-c", _SIZES]).stdout
    ctx.file("system_headers", sizes)
    is_clang = "clang version" in ctx.execute([driver, "--version"]).stdout
    ctx.file("kind.bzl", "\"\"\"Which compiler it is.\"\"\"\n\nIS_CLANG = %s\n" % is_clang)

compiler_repository = repository_rule(
    implementation = _compiler_impl,
    doc = "A link to the compiler itself (cc1plus of GCC, clang), kind.bzl, which says whether it is Clang, and " +
          "system_headers, which says which headers the system has.",
    configure = True,
    environ = ["CC"],
    local = True,
)
