#include "tests/parallel/ddp/parity_check.h"

#include <ATen/TensorOperators.h>

#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/safetensors.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "gtest/gtest.h"
#include "tests/parallel/ddp/parity_by_hand.h"
#include "tests/parallel/ddp/parity_tolerance.h"

namespace tandem {
namespace {

at::Tensor Stored(const std::string& name) {
  auto reader = SafetensorsReader::Open(
      "tests/parallel/ddp/testdata/ddp_parity_mlp.safetensors");
  EXPECT_TRUE(reader.ok()) << reader.status();
  const SafetensorsEntry* entry = (*reader)->Find(name);
  EXPECT_NE(entry, nullptr) << name;
  return *(*reader)->Read(*entry);
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == b.numel() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(),
                     a.numel() * a.element_size()) == 0;
}

bool SameBits(const ParityResult& a, const ParityResult& b) {
  return SameBits(a.first_gradients, b.first_gradients) &&
         SameBits(a.final, b.final);
}

// NaN where the other is, too.
void ExpectNear(const at::Tensor& actual, const at::Tensor& expected,
                double tolerance, const std::string& what) {
  ASSERT_EQ(actual.numel(), expected.numel()) << what;
  EXPECT_TRUE(actual.isnan().equal(expected.isnan())) << what;
  const at::Tensor errors = actual.sub(expected).nan_to_num(0).abs();
  EXPECT_LE(errors.max().item<float>(), tolerance) << what;
}

void ExpectSameBits(const at::Tensor& actual, const at::Tensor& expected,
                    const std::string& what) {
  EXPECT_TRUE(SameBits(actual, expected))
      << what << ": " << actual.ne(expected).sum().item<int64_t>()
      << " elements differ from those computed by hand, by up to "
      << actual.sub(expected).abs().max().item<float>();
}

void ExpectResultsOf(const ParityCase& job, const Communicator& world,
                     const ParityResult& result, const ParityResult& pythons) {
  const ParityTolerance tolerance = ToleranceOf(job, world.size());
  const std::string where =
      absl::StrCat(job.name, ", rank ", world.rank(), " of ", world.size());
  ExpectNear(result.first_gradients, pythons.first_gradients,
             tolerance.gradients, where + ", first gradients");
  ExpectNear(result.final, pythons.final, tolerance.weights,
             where + ", final weights");
  if (!HasBitsByHand(job, world.size())) return;
  const ParityResult by_hand = TrainByHand(job)[world.rank()];
  ExpectSameBits(result.first_gradients, by_hand.first_gradients,
                 where + ", first gradients");
  ExpectSameBits(result.final, by_hand.final, where + ", final weights");
}

}  // namespace

ParityResult PythonsResult(const ParityCase& job, int ranks, int rank) {
  const std::string own =
      job.options.parameters_to_ignore.empty() ? "" : absl::StrCat("/", rank);
  const std::string key = absl::StrCat(job.name, "/", ranks, "/");
  return {Stored(key + "first_gradients" + own), Stored(key + "final" + own)};
}

void ExpectPythonsResult(const ParityCase& job, int ranks,
                         const std::string& backend) {
  CommunicatorOptions options;
  options.backend = backend;
  std::atomic<bool> pythons_bits{true};
  const auto body = [&](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const ParityResult result,
                            RunParityCase(job, world));
    const ParityResult pythons = PythonsResult(job, ranks, world.rank());
    ExpectResultsOf(job, world, result, pythons);
    if (!SameBits(result, pythons)) pythons_bits = false;
    return absl::OkStatus();
  };
  ExpectOk(RunThreadRanks(ranks, body, options));
  testing::Test::RecordProperty("pythons_bits", pythons_bits ? "yes" : "no");
}

}  // namespace tandem
