// Losses of two sides, compared: do they train the same?

#ifndef TANDEM_TOOLS_BENCH_COMPARISON_LOSSES_H_
#define TANDEM_TOOLS_BENCH_COMPARISON_LOSSES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

// How far losses of a dtype may differ, relative to the peer's: both sides add
// in another order, and in bf16 they also round activations at other places (a
// fused kernel once, where PyTorch's operators round several times), which is
// some units of 2^-9 on each of a few hundred activations that a loss is a mean
// of; training moves them apart.
double LossTolerance(const std::string& dtype);

// Internal, naming the first step at which the losses differ by more than the
// tolerance, or one that is not finite.
absl::Status CompareLosses(const std::vector<double>& ours,
                           const std::string& peer,
                           const std::vector<double>& peers, double tolerance);

// Tandem's of the first steps, by the number of microbatches of all replicas:
// BatchNorm makes them differ. Schedules, cuts, chunks and layouts do not.
class KnownLosses {
 public:
  explicit KnownLosses(const std::string& dtype)
      : tolerance_(LossTolerance(dtype)) {}

  // Internal as CompareLosses, or where there are none to compare with.
  absl::Status Check(int microbatches, const std::string& peer,
                     const std::vector<double>& losses) const;
  // The first of a number of microbatches are kept; later ones are checked.
  absl::Status Learn(int microbatches, const std::string& name,
                     const std::vector<double>& losses);

 private:
  double tolerance_;
  std::map<int, std::vector<double>> losses_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_COMPARISON_LOSSES_H_
