// The built-in communication hooks against Python's (make_ddp_parity.py). Two
// ranks: bit for bit, if no word is said otherwise.

#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "parallel/compression_hooks.h"
#include "parallel/power_sgd.h"
#include "tests/parallel/ddp_parity_cases.h"

namespace tandem {
namespace {

class DdpHookParityTest
    : public testing::TestWithParam<std::tuple<int, std::string>> {
 protected:
  void ExpectPythons(const ParityCase& job, double tolerance) {
    ExpectPythonsResult(job, ranks(), std::get<1>(GetParam()), tolerance);
  }
  int ranks() const { return std::get<0>(GetParam()); }
};

TEST_P(DdpHookParityTest, AllReduce) {
  ParityCase job("allreduce_hook");
  job.hook = AllReduceHook;
  ExpectPythons(job, ranks() == 2 ? 0 : 1e-6);
}

TEST_P(DdpHookParityTest, Fp16Compression) {
  ParityCase job("fp16_hook");
  job.hook = Fp16CompressHook;
  ExpectPythons(job, ranks() == 2 ? 0 : 1e-6);
}

TEST_P(DdpHookParityTest, Bf16Compression) {
  ParityCase job("bf16_hook");
  job.hook = Bf16CompressHook;
  ExpectPythons(job, ranks() == 2 ? 0 : 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Ranks, DdpHookParityTest,
                         testing::Combine(testing::Values(2, 3, 4),
                                          testing::Values("gloo", "shm")),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param),
                                               std::get<1>(info.param));
                         });

}  // namespace
}  // namespace tandem
