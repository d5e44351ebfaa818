#include "tools/bench/bench_case.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {
namespace {

// A linear layer multiplies three times in a step (output, gradients of weight
// and input), each time 2 x batch x weights operations.
constexpr double LinearGflop(double batch, double weights) {
  return 6 * batch * weights / 1e9;
}

BenchCase MlpSmallCase() {
  BenchCase result;
  result.name = "mlp_small";
  result.input_shape = {64};
  result.classes = 64;
  result.batch_size = 32;
  result.optimizer = "sgd";
  result.learning_rate = 0.01;
  result.steps = 200;
  result.compared_steps = 20;
  result.gflop = LinearGflop(32, 8 * 64 * 64);
  return result;
}

BenchCase MlpWideCase() {
  BenchCase result;
  result.name = "mlp_wide";
  result.input_shape = {2048};
  result.classes = 2048;
  result.batch_size = 64;
  result.optimizer = "sgd";
  result.learning_rate = 0.01;
  result.steps = 8;
  result.compared_steps = 10;
  result.gflop = LinearGflop(64, 3 * 2048 * 2048);
  return result;
}

// One image of 3x64x64 takes 0.148e9 multiplications forward (1.814e9 at
// 224x224, whose area is 12.25 times as large).
BenchCase Resnet18Case() {
  BenchCase result;
  result.name = "resnet18";
  result.input_shape = {3, 64, 64};
  result.classes = 10;
  result.batch_size = 32;
  result.optimizer = "sgd";
  result.learning_rate = 0.001;
  result.steps = 3;
  // In float32 it is unstable: rounding grows a hundredfold with every step.
  result.compared_steps = 2;
  result.gflop = LinearGflop(32, 0.148e9);
  return result;
}

// 4 blocks of 12 x 128 x 128 weights and the head's 128 x 256, for 8 x 128
// tokens; in attention each token meets 64 others on the average, twice (scores
// and sums) in 4 blocks of width 128.
BenchCase GptTinyCase() {
  BenchCase result;
  result.name = "gpt_tiny";
  result.input_shape = {128};
  result.classes = 256;
  result.tokens = true;
  result.batch_size = 8;
  result.optimizer = "adamw";
  result.learning_rate = 3e-4;
  result.steps = 8;
  result.compared_steps = 10;
  result.gflop =
      LinearGflop(8 * 128, 4 * 12 * 128 * 128 + 128 * 256 + 4 * 2 * 64 * 128);
  return result;
}

}  // namespace

const std::vector<BenchCase>& BenchCases() {
  static const auto* const cases = new std::vector<BenchCase>{
      MlpSmallCase(), MlpWideCase(), Resnet18Case(), GptTinyCase()};
  return *cases;
}

absl::StatusOr<std::vector<BenchCase>> CasesNamed(
    const std::vector<std::string>& names) {
  const std::vector<BenchCase>& all = BenchCases();
  if (names.empty()) return all;
  std::vector<BenchCase> chosen;
  for (const std::string& name : names) {
    const auto found =
        std::find_if(all.begin(), all.end(),
                     [&](const BenchCase& each) { return each.name == name; });
    if (found == all.end()) {
      const auto name_of = [](std::string* out, const BenchCase& each) {
        out->append(each.name);
      };
      return absl::InvalidArgumentError(
          absl::StrCat("unknown case '", name, "': known are ",
                       absl::StrJoin(all, ", ", name_of)));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

}  // namespace tandem
