// What a rank of a model that ranks share holds between forward and backward,
// on simulated devices, whose books are exact, beside the formulas.

#include <ATen/ops/arange.h>
#include <c10/core/Device.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/context/compute_context.h"
#include "core/fused/causal_attention.h"
#include "core/model/layer_list.h"
#include "core/precision/autocast.h"
#include "core/precision/low_precision_copy.h"
#include "core/sim/memory/memory.h"
#include "core/sim/testing.h"
#include "core/testing/axis_ranks.h"
#include "core/testing/statuses.h"
#include "models/chunked_loss.h"
#include "models/tensor_parallel_loss.h"
#include "models/transformer/gpt.h"
#include "models/transformer/llama.h"
#include "models/transformer/training_memory.h"
#include "tests/models/tensor_parallel_lab.h"

namespace tandem::tensor_parallel_memory_test {
namespace {

constexpr int64_t kSamples = 2;
constexpr int64_t kTokens = 96;
constexpr int kMostRanks = 4;

const std::vector<c10::Device>& Devices() {
  static const auto* const devices =
      new std::vector<c10::Device>(SimDevices(kMostRanks));
  return *devices;
}

struct Held {
  int64_t parameters = 0;
  int64_t activations = 0;
};

struct Job {
  std::string name;
  LayerSpecs specs;
  int64_t vocabulary = 0;
  int64_t loss_chunk = 0;
  bool is_bf16 = false;
};

LossFunction JobLoss(const Job& job) {
  TensorParallelLossOptions options;
  options.classes = job.vocabulary;
  options.chunk = job.loss_chunk;
  options.head_weight = "lm_head.weight";
  return TensorParallelCrossEntropy(options);
}

Held ByCategory(c10::Device device) {
  const MemoryUse use = sim::DeviceMemoryStatistics(device.index()).now;
  const auto of = [&](MemoryCategory category) {
    return use.by_category[static_cast<size_t>(category)];
  };
  return {of(MemoryCategory::kParameters), of(MemoryCategory::kActivations)};
}

// What this rank's device holds when the loss is there.
absl::Status Measure(const Job& job, c10::Device device, Held* held) {
  const SampleScope samples({1, 2, 3});
  const LayerList layers = MakeLayers(job.specs, 1);
  TANDEM_RETURN_IF_ERROR(MoveLayers(layers, device));
  const at::Tensor tokens = (at::arange(kSamples * kTokens) % job.vocabulary)
                                .view({kSamples, kTokens})
                                .to(device);
  const LossFunction loss = JobLoss(job);
  const MemoryCategoryScope category(MemoryCategory::kActivations);
  const AutocastGuard autocast(
      device.type(),
      job.is_bf16 ? std::make_optional(at::kBFloat16) : std::nullopt);
  auto [outputs, skips] =
      ForwardWithSkips(layers, tokens, {}, loss.names().outputs);
  const LossResult result = loss({outputs, skips, tokens, {}});
  outputs.reset();
  *held = ByCategory(device);
  result.loss.backward();
  for (const auto& each : NamedParameters(layers)) {
    DropLowPrecisionCopy(each.second);
  }
  return absl::OkStatus();
}

// `expected` of so many ranks.
template <typename Expected>
void Compare(const Job& job, const Expected& expected) {
  for (const int64_t degree : {1, 2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      Held held;
      ExpectOk(RunAxisRanks(
          degree, [&](const std::shared_ptr<ThreadAxisGroup>& group) {
            const TensorParallelScope scope(
                MakeTensorParallel(group, sequence_parallel));
            Held mine;
            const absl::Status status = Measure(
                job, Devices()[static_cast<size_t>(group->index())], &mine);
            if (group->index() == 0) held = mine;
            return status;
          }));
      DeviceWork work;
      work.samples = kSamples;
      work.tokens = kTokens;
      work.loss_chunk = job.loss_chunk;
      work.tensor = degree;
      work.sequence_parallel = sequence_parallel && degree > 1;
      work.element_bytes = job.is_bf16 ? 2 : 4;
      work.attention_bytes =
          job.is_bf16 && !HasCausalAttention(at::kBFloat16) ? 4 : 0;
      const TrainingMemory memory = expected(work);
      std::printf("%-20s degree %d %-18s %9d held %9d by formula\n",
                  job.name.c_str(), static_cast<int>(degree),
                  sequence_parallel ? "sequence parallel" : "",
                  static_cast<int>(held.activations),
                  static_cast<int>(memory.activations));
      EXPECT_NEAR(static_cast<double>(held.activations),
                  static_cast<double>(memory.activations),
                  0.01 * static_cast<double>(memory.activations))
          << job.name << ", degree " << degree << ' ' << sequence_parallel;
      EXPECT_NEAR(static_cast<double>(held.parameters),
                  static_cast<double>(memory.parameters),
                  0.01 * static_cast<double>(memory.parameters))
          << job.name << ", degree " << degree << ' ' << sequence_parallel;
    }
  }
}

GptOptions Gpts() {
  GptOptions options;
  options.layers = 3;
  options.width = 96;
  options.heads = 4;
  options.context = kTokens;
  options.vocabulary = 301;
  return options;
}

void CompareGpt(const std::string& name, const GptOptions& options,
                int64_t loss_chunk = 0, bool is_bf16 = false) {
  Job job = {name, *Gpt(options), options.vocabulary, loss_chunk, is_bf16};
  if (loss_chunk > 0) job.specs = *WithoutLogits(std::move(job.specs));
  Compare(job, [&](const DeviceWork& work) { return MemoryOf(options, work); });
}

TEST(TensorParallelMemoryTest, OfAGpt) { CompareGpt("GPT", Gpts()); }

TEST(TensorParallelMemoryTest, OfAGptWithDropout) {
  GptOptions options = Gpts();
  options.dropout = 0.1;
  CompareGpt("GPT, dropout", options);
}

TEST(TensorParallelMemoryTest, OfAGptWithALossInChunks) {
  GptOptions options = Gpts();
  options.ties_lm_head = true;
  CompareGpt("tied GPT, chunks", options, /*loss_chunk=*/32);
}

TEST(TensorParallelMemoryTest, OfAGptInBf16) {
  CompareGpt("GPT, bf16", Gpts(), /*loss_chunk=*/0, /*is_bf16=*/true);
}

TEST(TensorParallelMemoryTest, OfALlama) {
  LlamaOptions options;
  options.layers = 3;
  options.width = 96;
  options.ffn_width = 256;
  options.heads = 8;
  options.kv_heads = 2;  // on two ranks each of four
  options.context = kTokens;
  options.vocabulary = 301;
  Compare({"Llama", *Llama(options), options.vocabulary},
          [&](const DeviceWork& work) { return MemoryOf(options, work); });
}

}  // namespace
}  // namespace tandem::tensor_parallel_memory_test
