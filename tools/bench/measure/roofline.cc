#include "tools/bench/measure/roofline.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/base/status_macros.h"
#include "core/comm/group_buffer.h"
#include "models/functions/matrix_product.h"
#include "tools/bench/measure/median.h"
#include "tools/bench/measure/usage.h"

namespace tandem {

namespace {

constexpr int64_t kSize = 1024;

double BestGflops(absl::FunctionRef<void()> multiply) {
  constexpr int kRepeats = 20;
  double best_ms = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepeats; ++i) {
    const Usage before = Usage::Now();
    multiply();
    best_ms = std::min(best_ms, (Usage::Now() - before).wall_ms);
  }
  return 2.0 * kSize * kSize * kSize / best_ms / 1e6;
}

}  // namespace

GemmRates MeasureGemm() {
  at::NoGradGuard no_grad;
  const at::Tensor a = at::ones({kSize, kSize});
  const at::Tensor b = at::ones({kSize, kSize});
  return {BestGflops([&] { at::mm(a, b); }),
          BestGflops([&] { MatrixProduct(a, b); })};
}

absl::StatusOr<double> AllReduceMs(Communicator& group, int64_t numel) {
  constexpr int kRepeats = 9;
  TANDEM_ASSIGN_OR_RETURN(const at::Tensor buffer,
                          NewGroupBuffer(group, numel, at::kFloat));
  std::vector<double> times;
  for (int i = 0; i <= kRepeats; ++i) {
    TANDEM_RETURN_IF_ERROR(group.Barrier());
    const Usage before = Usage::Now();
    TANDEM_RETURN_IF_ERROR(group.AllReduceSum(buffer));
    // The first touches the memory.
    if (i > 0) times.push_back((Usage::Now() - before).wall_ms);
  }
  return Median(times);
}

}  // namespace tandem
