#include "core/device/determinism.h"

#include <ATen/Context.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr char kWorkspace[] = "CUBLAS_WORKSPACE_CONFIG";
// Eight buffers of 4 MiB for each handle; the other one that cuBLAS's manual
// calls deterministic, ":16:8", is slower.
constexpr char kUsualWorkspace[] = ":4096:8";

absl::Status CheckWorkspace() {
  const char* const given = std::getenv(kWorkspace);
  const absl::string_view value = given == nullptr ? "" : given;
  if (value.empty() || value == kUsualWorkspace || value == ":16:8") {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      kWorkspace, "=", value,
      " lets cuBLAS sum in another order in another run, which what is "
      "reproducible cannot have: unset it, or set :4096:8 or :16:8"));
}

absl::Status Check(const GpuNumerics& numerics) {
  if (!numerics.deterministic) return absl::OkStatus();
  if (numerics.cudnn_benchmark || numerics.allow_tf32) {
    return absl::InvalidArgumentError(absl::StrCat(
        numerics.cudnn_benchmark ? "cuDNN's benchmark, which picks by time,"
                                 : "TF32, which other GPUs do not have,",
        " excludes deterministic results: leave one out"));
  }
  return CheckWorkspace();
}

}  // namespace

absl::Status SetGpuNumerics(const GpuNumerics& numerics) {
  const absl::Status checked = Check(numerics);
  if (!checked.ok()) return checked;
  at::Context& context = at::globalContext();
  if (numerics.deterministic) {
    const char* const given = std::getenv(kWorkspace);
    const bool is_set = given != nullptr && *given != '\0';
    if (!is_set) setenv(kWorkspace, kUsualWorkspace, /*overwrite=*/1);
  }
  context.setDeterministicAlgorithms(numerics.deterministic,
                                     /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(numerics.deterministic);
  context.setDeterministicCuDNN(numerics.deterministic);
  context.setBenchmarkCuDNN(numerics.cudnn_benchmark);
  context.setAllowTF32CuDNN(numerics.allow_tf32);
  context.setAllowTF32CuBLAS(numerics.allow_tf32);
  return absl::OkStatus();
}

// at::Context::alertNotDeterministic: "NAME does not have a deterministic
// implementation, but you set 'torch.use_deterministic_algorithms(True)'. ..."
std::string NondeterministicOperator(absl::string_view message) {
  const size_t end =
      message.find(" does not have a deterministic implementation");
  if (end == absl::string_view::npos) return "";
  const absl::string_view before = message.substr(0, end);
  const size_t space = before.find_last_of(' ');
  return std::string(
      space == absl::string_view::npos ? before : before.substr(space + 1));
}

absl::Status ExplainNondeterminism(const absl::Status& status) {
  const std::string name = NondeterministicOperator(status.message());
  if (name.empty()) return status;
  return absl::InvalidArgumentError(absl::StrCat(
      "the operator ", name,
      " gives other bits in another run on a GPU, which --reproducible cannot "
      "have: leave --reproducible out, or take a model without it (",
      status.message(), ")"));
}

}  // namespace tandem
