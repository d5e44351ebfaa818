#include "tools/bench/process/python.h"

#include <torch/headeronly/version.h>

#include <chrono>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/process/subprocess.h"
#include "tools/bench/process/line_reader.h"

namespace tandem {
namespace {

constexpr std::chrono::minutes kTimeout(2);
constexpr char kAdvice[] =
    "The benchmark runs Python's PyTorch beside tandem. To have one:\n"
    "  python3 -m venv ~/torch-venv\n"
    "  ~/torch-venv/bin/pip install torch==" TORCH_VERSION
    " numpy\n"
    "and give --python=$HOME/torch-venv/bin/python, or set "
    "TANDEM_PEER_PYTHON.";

// What `python` says its torch's version is; empty if it has none.
absl::StatusOr<std::string> TorchVersion(const std::string& python,
                                         const Environment& environment) {
  SubprocessOptions options;
  options.program = "/usr/bin/env";
  options.argv = {"env", python, "-c",
                  "import torch, numpy; print(torch.__version__)"};
  options.environment = environment.ToStrings();
  options.out = SubprocessOptions::Stream::kPipe;
  options.err = SubprocessOptions::Stream::kPipe;
  TANDEM_ASSIGN_OR_RETURN(Subprocess process, Subprocess::Start(options));
  process.Wait(kTimeout);
  LineReader out(process.out_fd());
  out.Pump();
  return out.Next().value_or("");
}

}  // namespace

absl::StatusOr<std::string> FindPython(const std::string& given,
                                       const Environment& environment) {
  const std::string python =
      !given.empty()
          ? given
          : environment.Get("TANDEM_PEER_PYTHON").value_or("python3");
  TANDEM_ASSIGN_OR_RETURN(const std::string version,
                          TorchVersion(python, environment));
  if (absl::StartsWith(version, TORCH_VERSION)) return python;
  const std::string found =
      version.empty()
          ? "does not import torch and numpy"
          : absl::StrCat("has torch ", version, ", not ", TORCH_VERSION);
  return absl::NotFoundError(absl::StrCat(python, " ", found, ". ", kAdvice));
}

}  // namespace tandem
