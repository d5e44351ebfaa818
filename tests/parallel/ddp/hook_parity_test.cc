// The built-in communication hooks under DistributedDataParallel against
// Python's (make_ddp_parity.py). A last bit of float may decide about a whole
// unit of half precision, and with three and four ranks every partial sum is
// rounded, so that the order in which ranks are summed shows
// (parity_tolerance.h). Two ranks give exactly what this processor makes of the
// job by hand.

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/testing/device_types.h"
#include "core/testing/statuses.h"
#include "gtest/gtest.h"
#include "parallel/comm_hooks/compression_hooks.h"
#include "parallel/comm_hooks/power_sgd.h"
#include "tests/models/formula_values.h"
#include "tests/parallel/ddp/parity_cases.h"
#include "tests/parallel/ddp/parity_check.h"
#include "tests/parallel/ddp/parity_mlp.h"

namespace tandem {
namespace {

class DdpHookParityTest : public DeviceTypesAnd<std::tuple<int, std::string>> {
 protected:
  void ExpectPythons(const ParityCase& job) {
    ExpectPythonsResult(job, std::get<0>(value()), std::get<1>(value()));
  }
};

TEST_P(DdpHookParityTest, AllReduce) {
  ParityCase job("allreduce_hook");
  job.hook = AllReduceHook;
  ExpectPythons(job);
}

TEST_P(DdpHookParityTest, Fp16Compression) {
  ParityCase job("fp16_hook");
  job.hook = Fp16CompressHook;
  job.sent_as = at::kHalf;
  ExpectPythons(job);
}

TEST_P(DdpHookParityTest, Bf16Compression) {
  ParityCase job("bf16_hook");
  job.hook = Bf16CompressHook;
  job.sent_as = at::kBFloat16;
  ExpectPythons(job);
}

// As function power_sgd of the script: the Qs that it begins with are the
// formula's.
CommunicationHook PowerSgdHook(PowerSgdOptions options) {
  options.start_power_sgd_iter = 2;
  options.orthogonalization_epsilon = 1e-8;
  PowerSgd power_sgd = *PowerSgd::Create(options);
  if (options.warm_start) {
    NamedTensors state = power_sgd.State();
    for (const auto& parameter : ParityMlp().named_parameters()) {
      if (parameter->dim() < 2) continue;
      const int64_t rank = std::min({parameter->size(0), parameter->size(1),
                                     options.matrix_approximation_rank});
      at::Tensor q = at::empty({parameter->size(1), rank});
      FillByFormula(parameter.key() + ".q", q);
      state.emplace_back(parameter.key() + ".q", q);
    }
    ExpectOk(power_sgd.LoadState(state));
  }
  return power_sgd.Hook();
}

TEST_P(DdpHookParityTest, PowerSgdOfRankOneAndTwo) {
  PowerSgdOptions options;
  options.min_compression_rate = 1;
  ParityCase job("power_sgd");
  job.hook = [&] { return PowerSgdHook(options); };
  job.power_sgd = true;
  ExpectPythons(job);

  options.matrix_approximation_rank = 2;
  options.min_compression_rate = 0.5;
  job.name = "power_sgd_rank_2";
  ExpectPythons(job);
}

TEST_P(DdpHookParityTest, PowerSgdWithoutErrorFeedback) {
  PowerSgdOptions options;
  options.min_compression_rate = 1;
  options.use_error_feedback = false;
  ParityCase job("power_sgd_without_feedback");
  job.hook = [&] { return PowerSgdHook(options); };
  job.power_sgd = true;
  ExpectPythons(job);
}

// Random Qs, as many columns as any gradient has: the mean itself.
TEST_P(DdpHookParityTest, PowerSgdOfFullRank) {
  PowerSgdOptions options;
  options.matrix_approximation_rank = kParityWidth;
  options.min_compression_rate = 0.01;
  options.warm_start = false;
  ParityCase job("power_sgd_full_rank");
  job.hook = [&] { return PowerSgdHook(options); };
  job.power_sgd = true;
  ExpectPythons(job);
}

TANDEM_ON_DEVICE_TYPES_AND(DdpHookParityTest,
                           testing::Combine(testing::Values(2, 3, 4),
                                            testing::Values("gloo", "shm")));

}  // namespace
}  // namespace tandem
