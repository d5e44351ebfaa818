#include "tools/bench/case/workload.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/edit_distance.h"

namespace tandem {
namespace {

// A linear layer multiplies three times in a step (output, gradients of weight
// and input), each time 2 x weights operations a sample.
constexpr double LinearGflop(double weights) { return 6 * weights / 1e9; }

Workload Mlp(const std::string& name, int64_t width, int64_t batch_size) {
  Workload result;
  result.model = name;
  result.input_shape = {width};
  result.classes = width;
  result.batch_size = batch_size;
  result.optimizer = "sgd";
  result.learning_rate = 0.01;
  return result;
}

Workload MlpSmall() {
  Workload result = Mlp("mlp_small", 64, 32);
  result.steps = 200;
  result.compared_steps = 20;
  result.gflop = LinearGflop(8 * 64 * 64);
  return result;
}

Workload MlpWide() {
  Workload result = Mlp("mlp_wide", 2048, 64);
  result.steps = 8;
  result.compared_steps = 10;
  result.gflop = LinearGflop(3 * 2048 * 2048);
  return result;
}

Workload MlpDeep() {
  Workload result = Mlp("mlp_deep", 512, 128);
  result.steps = 10;
  result.compared_steps = 3;
  return result;
}

// A network of images of ten classes.
Workload ImageNetwork(const std::string& name, std::vector<int64_t> shape,
                      int64_t batch_size, double learning_rate) {
  Workload result;
  result.model = name;
  result.input_shape = std::move(shape);
  result.classes = 10;
  result.batch_size = batch_size;
  result.optimizer = "sgd";
  result.learning_rate = learning_rate;
  return result;
}

// The trainer's default job: an image of 1x28x28 takes 16 x 9 multiplications
// at each of its places forward, and 32 x 16 x 9 at a quarter of them.
Workload Cnn() {
  Workload result = ImageNetwork("cnn", {1, 28, 28}, 64, 0.05);
  result.steps = 50;
  result.compared_steps = 10;
  result.gflop = LinearGflop(28 * 28 * 16 * 9 + 14 * 14 * 32 * 16 * 9 +
                             32 * 7 * 7 * 128 + 128 * 10);
  return result;
}

// One image of 3x64x64 takes 0.148e9 multiplications forward (1.814e9 at
// 224x224, whose area is 12.25 times as large).
Workload Resnet18() {
  Workload result = ImageNetwork("resnet18", {3, 64, 64}, 32, 0.001);
  result.steps = 3;
  // In float32 it is unstable: rounding grows a hundredfold with every step.
  result.compared_steps = 2;
  result.gflop = LinearGflop(0.148e9);
  return result;
}

// Blocks of so many weights, and the head's width x classes.
Workload Transformer(const std::string& model, int64_t blocks,
                     int64_t block_weights, int64_t width, int64_t classes,
                     int64_t tokens) {
  Workload result;
  result.model = model;
  result.classes = classes;
  result.tokens = true;
  result.weights_of_token = blocks * block_weights + classes * width;
  result.attention_of_token = blocks * width;
  result.batch_size = 8;
  result.optimizer = "adamw";
  result.learning_rate = 3e-4;
  result.steps = 8;
  result.compared_steps = 10;
  return WithTokens(result, tokens);
}

Workload Gpt(const std::string& model, int64_t blocks, int64_t width,
             int64_t classes, int64_t tokens) {
  return Transformer(model, blocks, 12 * width * width, width, classes, tokens);
}

Workload GptTiny() { return Gpt("gpt_tiny", 4, 128, 256, 128); }

Workload GptBaby() {
  Workload result = Gpt("gpt_baby", 6, 384, 320, 256);
  result.batch_size = 4;
  result.steps = 4;
  result.compared_steps = 4;
  return result;
}

// Queries and outputs are as wide as the model, keys and values half of it.
Workload LlamaBaby() {
  constexpr int64_t kWidth = 384;
  Workload result =
      Transformer("llama_baby", 6, 3 * kWidth * kWidth + 3 * kWidth * 1024,
                  kWidth, 320, 256);
  result.batch_size = 4;
  result.steps = 4;
  result.compared_steps = 4;
  return result;
}

Workload Gpt2() {
  Workload result = Gpt("gpt2", 12, 768, 50257, 1024);
  result.steps = 10;
  result.compared_steps = 3;
  return result;
}

const std::vector<Workload>& Workloads() {
  static const auto* const all = new std::vector<Workload>{
      MlpSmall(), MlpWide(), MlpDeep(),   Cnn(), Resnet18(),
      GptTiny(),  GptBaby(), LlamaBaby(), Gpt2()};
  return *all;
}

// Classes are drawn: at the workload's own rate a long epoch may diverge.
constexpr double kShareOfLearningRate = 0.1;

}  // namespace

absl::StatusOr<Workload> WorkloadNamed(const std::string& model) {
  for (const Workload& each : Workloads()) {
    if (each.model == model) return each;
  }
  std::vector<std::string> known;
  for (const Workload& each : Workloads()) known.push_back(each.model);
  return absl::NotFoundError(
      absl::StrCat("no model of the benchmarks is called '", model,
                   "': choose one of ", NamesNear(model, known)));
}

// In attention each token meets half of the others on the average, twice
// (scores and sums), in each block's width.
Workload WithTokens(Workload workload, int64_t tokens) {
  workload.input_shape = {tokens};
  workload.gflop =
      static_cast<double>(tokens) *
      LinearGflop(static_cast<double>(workload.weights_of_token +
                                      tokens * workload.attention_of_token));
  return workload;
}

Workload WithSgd(Workload workload, double learning_rate,
                 int64_t compared_steps) {
  workload.optimizer = "sgd";
  workload.learning_rate = learning_rate;
  workload.compared_steps = compared_steps;
  return workload;
}

std::vector<std::string> TrainFlags(const Workload& workload, int ranks,
                                    int64_t steps) {
  const int64_t batch = workload.batch_size * ranks;
  std::vector<std::string> flags = {
      absl::StrCat("--nproc_per_node=", ranks),
      absl::StrCat("--model=", workload.model),
      absl::StrCat("--dataset=",
                   workload.tokens ? "synthetic_tokens" : "synthetic"),
      absl::StrCat("--synthetic_shape=",
                   absl::StrJoin(workload.input_shape, ",")),
      absl::StrCat("--synthetic_samples=", batch * steps),
      absl::StrCat("--batch_size=", batch),
      absl::StrCat("--optimizer=", workload.optimizer),
      absl::StrCat("--learning_rate=",
                   workload.learning_rate * kShareOfLearningRate),
  };
  if (!workload.tokens) {
    flags.push_back(absl::StrCat("--synthetic_classes=", workload.classes));
  }
  return flags;
}

}  // namespace tandem
