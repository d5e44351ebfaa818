#include "tests/parallel/ddp/parity_check.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/types/variant.h"
#include "core/base/status_macros.h"
#include "core/checkpoint/safetensors.h"
#include "core/testing/statuses.h"
#include "core/testing/thread_ranks.h"
#include "tests/models/rounding.h"
#include "tests/parallel/ddp/parity_cases.h"

namespace tandem {
namespace {

// The way of a number through the network and back: sums of 7, 9, 9 and 9
// products and of 5 exponentials, three functions that may be off by 4 units,
// the same once more in backward, and sums over 4 samples, 3 microbatches and
// 4 ranks. What is summed stays about 1, gradients are below 0.75.
constexpr int kRoundings = 128;
constexpr double kMagnitude = 1;
constexpr double kLargestGradient = 0.75;

// Weights that are off put the gradients of later steps off, by no more than
// the rounding does: five steps of 0.1 against a curvature of about 1.
constexpr double kFeedback = 2;

// The second column of what PowerSGD orthogonalises keeps at least a tenth of
// its length, so that an error in its direction grows tenfold.
constexpr double kProjection = 10;

double OfFloats() {
  return RoundingTolerance(at::kFloat, kRoundings, kMagnitude);
}

// A last bit of float decides which way a number is rounded to half precision,
// a whole unit there. That can befall the gradients when they are rounded (the
// ranks' share of the mean: one unit of it), when they are divided (likewise),
// and each sum of two ranks'.
double OfGradients(const ParityCase& job, int ranks) {
  if (job.sent_as == at::kFloat) return OfFloats();
  const int decisions = 1 + 1 + (ranks - 1);
  return decisions * UnitInLastPlace(job.sent_as, kLargestGradient) +
         OfFloats();
}

// What an error of 1 in the gradient of every step makes of a weight.
double GrowthOf(const SgdOptions& sgd, double rate, int steps) {
  double velocity = 0;
  double weight = 0;
  for (int step = 0; step < steps; ++step) {
    velocity = sgd.momentum * velocity + 1;
    weight += rate * velocity;
  }
  return kFeedback * weight;
}

// A gradient far below eps moves its weight by rate / eps times itself. Others
// grow less by orders of magnitude, so that there is no feedback to speak of.
double GrowthOf(const AdamWOptions& adamw, double rate, int steps) {
  return steps * rate / adamw.eps;
}

double GrowthOf(const ParityCase& job) {
  if (const auto* sgd = absl::get_if<SgdOptions>(&job.optimizer)) {
    return GrowthOf(*sgd, job.learning_rate, job.steps);
  }
  return GrowthOf(absl::get<AdamWOptions>(job.optimizer), job.learning_rate,
                  job.steps);
}

}  // namespace

ParityTolerance ToleranceOf(const ParityCase& job, int ranks) {
  const double gradients = OfGradients(job, ranks);
  const double later = job.power_sgd ? kProjection * gradients : gradients;
  return {gradients, GrowthOf(job) * later};
}

namespace {

constexpr int kRanks = 2;

struct Replica {
  Replica(const ParityCase& job, int rank)
      : model(std::make_shared<ParityMlp>(ParitySuffix(rank))),
        parameters(model->named_parameters()),
        optimizer(job.optimizer, model->parameters()) {
    for (auto& parameter : parameters) {
      parameter.value().requires_grad_(
          !absl::c_linear_search(job.frozen, parameter.key()));
    }
  }

  std::shared_ptr<ParityMlp> model;
  torch::OrderedDict<std::string, at::Tensor> parameters;
  PythonOptimizer optimizer;
};

class ByHand {
 public:
  explicit ByHand(const ParityCase& job) : job_(job) {
    for (int rank = 0; rank < kRanks; ++rank) replicas_.emplace_back(job, rank);
    at::NoGradGuard no_grad;
    ForEachShared(
        [](at::Tensor& first, at::Tensor& second) { second.copy_(first); });
  }

  std::vector<ParityResult> Train();

 private:
  // With both replicas' parameter, unless it is each rank's own.
  template <typename Function>
  void ForEachShared(const Function& function);
  void Backward(int step, int rank);
  void FormMeans();
  void Update(Replica& replica);

  const ParityCase& job_;
  std::vector<Replica> replicas_;
};

template <typename Function>
void ByHand::ForEachShared(const Function& function) {
  for (auto& parameter : replicas_[0].parameters) {
    if (absl::c_linear_search(job_.options.parameters_to_ignore,
                              parameter.key())) {
      continue;
    }
    function(parameter.value(), replicas_[1].parameters[parameter.key()]);
  }
}

void ByHand::Backward(int step, int rank) {
  const int count = job_.MicrobatchesOf(step);
  for (int microbatch = 0; microbatch < count; ++microbatch) {
    const ParityBatch batch = MakeParityBatch(step, rank, microbatch);
    const at::Tensor outputs = replicas_[rank].model->forward(
        batch.inputs, job_.UsesBranch(step, rank), job_.times);
    ParityLoss(outputs, batch).div(count).backward();
  }
}

// A gradient that one rank lacks counts as 0.
void ByHand::FormMeans() {
  at::NoGradGuard no_grad;
  const auto share = [this](const at::Tensor& parameter) {
    const at::Tensor& gradient = parameter.grad();
    return (gradient.defined() ? gradient : at::zeros_like(parameter))
        .to(job_.sent_as)
        .div(kRanks);
  };
  ForEachShared([&](at::Tensor& first, at::Tensor& second) {
    if (!first.grad().defined() && !second.grad().defined()) return;
    const at::Tensor mean = share(first).add(share(second)).to(at::kFloat);
    first.mutable_grad() = mean;
    second.mutable_grad() = mean.clone();
  });
}

void ByHand::Update(Replica& replica) {
  if (job_.clip_value > 0) {
    for (auto& parameter : replica.parameters) {
      at::Tensor& gradient = parameter.value().mutable_grad();
      if (gradient.defined())
        gradient.clamp_(-job_.clip_value, job_.clip_value);
    }
  }
  replica.optimizer.Step(job_.learning_rate);
  for (auto& parameter : replica.parameters) {
    parameter.value().mutable_grad().reset();
  }
}

std::vector<ParityResult> ByHand::Train() {
  std::vector<ParityResult> results(kRanks);
  for (int step = 0; step < job_.steps; ++step) {
    for (int rank = 0; rank < kRanks; ++rank) Backward(step, rank);
    FormMeans();
    for (int rank = 0; rank < kRanks; ++rank) {
      Replica& replica = replicas_[rank];
      if (step == 0) {
        results[rank].first_gradients = FlattenGradients(*replica.model);
      }
      Update(replica);
      results[rank].final = FlattenParameters(*replica.model);
    }
  }
  return results;
}

}  // namespace

bool HasBitsByHand(const ParityCase& job, int ranks) {
  return ranks == kRanks && !job.power_sgd && job.clip_norm == 0 &&
         job.pythons_optimizer;
}

std::vector<ParityResult> TrainByHand(const ParityCase& job) {
  at::set_num_threads(1);
  return ByHand(job).Train();
}

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
