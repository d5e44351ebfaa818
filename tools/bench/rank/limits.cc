#include "tools/bench/rank/limits.h"

#include <ATen/Version.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "core/autotune/choice_file.h"
#include "core/base/status_macros.h"
#include "models/functions/wide_product.h"
#include "tools/bench/measure/roofline.h"
#include "tools/bench/rank/group.h"

namespace tandem {

using nlohmann::json;

json GemmLimits() {
  const GemmRates rates = MeasureGemm();
  return {{"mkl_gflops", rates.mkl}, {"one_dnn_gflops", rates.one_dnn}};
}

absl::StatusOr<json> AllReduceLimits(Communicator& world, int64_t numel,
                                     const std::string& rendezvous) {
  TANDEM_ASSIGN_OR_RETURN(const double ms, AllReduceMs(world, numel));
  TANDEM_ASSIGN_OR_RETURN(
      const std::unique_ptr<Communicator> gloo,
      ConnectRanks(rendezvous, world.rank(), world.size(), "gloo"));
  TANDEM_ASSIGN_OR_RETURN(const double gloo_ms, AllReduceMs(*gloo, numel));
  return json{{"ms", ms}, {"gloo_ms", gloo_ms}};
}

std::string DescribeKernels(const std::string& dtype,
                            const std::string& cache) {
  const std::string others =
      absl::StrCat("; ", at::get_cpu_capability(), " in other kernels");
  if (dtype == "bf16") {
    return absl::StrCat("products of bf16: oneDNN",
                        HasWideProduct() ? ", sums kept in fp32" : "", others);
  }
  const auto file = ChoiceFile::Open(cache);
  const auto chosen = file.ok() ? (*file)->Read() : file.status();
  if (!chosen.ok()) return absl::StrCat("products: by rule", others);
  const auto count =
      std::count_if(chosen->begin(), chosen->end(),
                    [](const auto& choice) { return choice.second == "mkl"; });
  return absl::StrCat("products: MKL for ", count, " shapes, oneDNN for ",
                      chosen->size() - static_cast<size_t>(count),
                      ", as timed; smaller ones MKL", others);
}

}  // namespace tandem
