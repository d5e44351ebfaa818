// A job for strangers_test: data-parallel gradient descent on a linear model,
// for a moment. Rank 0 says which bits the weights have at the end.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "absl/flags/flag.h"
#include "core/base/status_macros.h"
#include "core/digest/sha256.h"
#include "core/run/run_program.h"

ABSL_FLAG(std::string, backend, "shm", "The backend of the ranks' group.");
ABSL_FLAG(int, timeout, 60, "Seconds that a rank waits for others.");

namespace tandem {
namespace {

constexpr int kSteps = 120;
constexpr int kRows = 64;
constexpr int kColumns = 16;

absl::Status Train(Rank& rank) {
  const at::Tensor inputs =
      at::sin(at::arange(kRows * kColumns) * 1.7 + rank.rank())
          .reshape({kRows, kColumns});
  const at::Tensor targets = at::sin(at::arange(kRows) * 0.3 + rank.rank());
  at::Tensor weights = at::zeros({kColumns});
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor errors = at::matmul(inputs, weights) - targets;
    at::Tensor gradient = at::matmul(inputs.t(), errors).contiguous();
    TANDEM_RETURN_IF_ERROR(rank.world.AllReduceSum(gradient));
    weights.sub_(gradient, 1e-3);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (rank.rank() != 0) return absl::OkStatus();
  Sha256 hash;
  hash.Update(weights.data_ptr(), weights.nbytes());
  std::printf("weights %s\n", hash.HexDigest().c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::RunOptions options;
  options.name = "small_job";
  options.usage = "Trains a linear model.";
  // The command line is read by RunProgram, after this.
  options.check = [&options](const tandem::Launch&) {
    options.communication.backend = absl::GetFlag(FLAGS_backend);
    options.communication.timeout =
        std::chrono::seconds(absl::GetFlag(FLAGS_timeout));
    return absl::OkStatus();
  };
  return tandem::RunProgram(argc, argv, options, &tandem::Train);
}
