#include "tests/parallel/ddp/parity_tolerance.h"

#include "absl/types/variant.h"
#include "tests/models/rounding.h"

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

}  // namespace tandem
