// Adapters in layouts of the mesh: the same bits in all, a model that stays as
// it was, and what a frozen model takes neither memory nor messages for.

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/device/memory_category.h"
#include "core/model/layer_list.h"
#include "core/sim/memory/memory.h"
#include "core/sim/testing.h"
#include "models/lora/lora.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"
#include "tests/parallel/strategy/technique_rows.h"

namespace tandem::lora_layouts_test {
namespace {

LoraOptions Adapters(const std::string& on) {
  LoraOptions options;
  options.rank = 3;
  options.alpha = 6;
  options.on = on;
  options.dropout = 0.25;
  return options;
}

LabJob AdapterJob(const std::string& model, const std::string& on,
                  const LabChange& change) {
  LabJob job = ModelJob(model, /*size=*/24, /*steps=*/3, [=](auto& options) {
    options.optimizer = AdamWOptions();
    options.clip_norm = 0.5;
    change(options);
  });
  job.specs = [=] { return *WithLora(LabSpecs(model), Adapters(on)); };
  return job;
}

// First stages without an adapter, and last ones: nothing goes back to them.
const std::map<std::string, std::string>& Patterns() {
  static const auto* const patterns = new std::map<std::string, std::string>{
      {"gpt_tiny_tied", "c_attn"},
      {"llama_tiny", R"(layers\.1\.(self_attn.[qv]_proj|mlp))"},
      {"mlp_small", "fc2"}};
  return *patterns;
}

constexpr char kColumns[] =
    "sequential 1x1x1, 1f1b 2x1x1, 1f1b 1x1x2, zb_h1 1x2x1, zb_h1 2x1x2, "
    "1f1b 3x2x1, 1f1b 1x2x1 always";
constexpr char kDeeperColumns[] = ", zb_v 2x1x2x2, interleaved_1f1b 2x2x1x2";

std::vector<TechniqueRow> AdapterRows() {
  std::vector<TechniqueRow> rows;
  for (const auto& [model, on] : Patterns()) {
    const std::string columns =
        absl::StrCat(kColumns, model == "mlp_small" ? "" : kDeeperColumns);
    for (const auto sharding : {Sharding::kOff, Sharding::kOptimizer}) {
      LabJob job = AdapterJob(model, on, [=](auto& options) {
        options.reproducible = true;
        options.ema_decay = 0.75;
        options.shard = sharding;
      });
      job.test = 9;
      const bool shares = sharding == Sharding::kOptimizer;
      rows.push_back({absl::StrCat("Lora_", model, shares ? "Sharded" : ""),
                      LabLayouts(columns), Always(job)});
    }
  }
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    rows.push_back(
        {absl::StrCat("Lora_", at::toString(dtype)),
         LabLayouts("zb_h1 1x2x1, 1f1b 2x1x1"),
         Always(AdapterJob("gpt_tiny_tied", "c_attn", [=](auto& options) {
           options.reproducible = true;
           options.ddp.mixed_precision.param_dtype = dtype;
         }))});
  }
  // One tensor is two copies where it is cut, and sums are taken otherwise. By
  // SGD: AdamW's first steps are as long as its rate, whatever the gradient, so
  // that the rounding of one near zero would show.
  rows.push_back({"Lora_NotReproducible",
                  LabLayouts("1f1b 2x1x1, 1f1b 1x1x2, zb_h1 1x2x1, "
                             "zb_h1 2x1x2, 1f1b 3x2x1"),
                  Always(AdapterJob(
                      "gpt_tiny_tied", "c_attn",
                      [](auto& options) { options.optimizer = SgdOptions(); })),
                  LabLayoutNamed("sequential 1x1x1")});
  rows.back().tolerance.emplace();
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Lora, TechniqueTest, testing::ValuesIn(AdapterRows()),
                         RowName);

TEST(LoraLayoutsTest, HaveTheirCells) {
  size_t cells = 0;
  for (const TechniqueRow& row : AdapterRows()) cells += row.columns.size();
  EXPECT_EQ(cells, 2u * (9 + 9 + 7) + 2 * 2 + 5);
}

TEST(LoraLayoutsTest, AFrozenModelKeepsItsBitsAndHasNoState) {
  const std::string model = "gpt_tiny_tied";
  const LabJob job = AdapterJob(model, "c_attn", [](auto&) {});
  const auto before =
      CopiesOf(NamedParameters(MakeLayers(job.specs(), kLabSeed)));
  for (const LabLayout& layout :
       LabLayouts("sequential 1x1x1, zb_h1 2x1x2, 1f1b 1x2x1")) {
    SCOPED_TRACE(layout.name);
    const auto after = TrainInLab(layout, job);
    ASSERT_TRUE(after.ok()) << after.status();
    size_t adapters = 0;
    for (const auto& [name, values] : before) {
      const bool is_adapter = IsLoraParameter(name);
      adapters += is_adapter ? 1 : 0;
      EXPECT_EQ(after->model.at(name).equal(values), !is_adapter) << name;
    }
    EXPECT_EQ(adapters, 8u);
    // Two means and a number of steps each.
    EXPECT_EQ(after->optimizer.size(), 3 * adapters);
    for (const auto& [name, state] : after->optimizer) {
      EXPECT_NE(name.find(".lora_"), std::string::npos) << name;
    }
  }
}

struct Held {
  std::map<std::string, double> measurements;
  MemoryUse use;

  int64_t bytes(MemoryCategory category) const {
    return use.by_category[static_cast<size_t>(category)];
  }
};

// What the first of two replicas has after three steps.
Held HeldBy(LabJob job) {
  LabLayout layout = LabLayoutNamed("sequential 2x1x1");
  layout.device_pool = SimDevices(2);
  Held held;
  job.end = [&held](const LabRank& rank) {
    if (rank.rank != 0) return absl::OkStatus();
    for (const auto& [name, value] : rank.strategy->Measurements()) {
      held.measurements[name] = value;
    }
    held.use = sim::DeviceMemoryStatistics(0).now;
    return absl::OkStatus();
  };
  const auto outcome = TrainInLab(layout, job);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return held;
}

TEST(LoraLayoutsTest, MemoryAndMessagesAreTheAdapters) {
  const std::string model = "gpt_tiny_tied";
  const Held adapted = HeldBy(AdapterJob(model, "c_attn", [](auto&) {}));
  LabJob plain = AdapterJob(model, "c_attn", [](auto&) {});
  plain.specs = [=] { return LabSpecs(model); };
  const Held whole = HeldBy(plain);
  int64_t adapters = 0, frozen = 0;  // bytes
  for (const auto& [name, tensor] : NamedParameters(
           MakeLayers(*WithLora(LabSpecs(model), Adapters("c_attn")), 1))) {
    const bool is_copy = name == "lm_head.weight";
    if (!is_copy)
      (IsLoraParameter(name) ? adapters : frozen) += tensor.nbytes();
  }
  // What goes between replicas.
  EXPECT_EQ(adapted.measurements.at("num_parameter_tensors"), 8);
  EXPECT_EQ(adapted.measurements.at("total_parameter_size_bytes"), adapters);
  EXPECT_EQ(whole.measurements.at("total_parameter_size_bytes"), frozen);
  // Each parameter begins on 64 bytes.
  const int64_t most = adapters + 8 * 64;
  EXPECT_LE(adapted.bytes(MemoryCategory::kGradients), most);
  EXPECT_LE(adapted.bytes(MemoryCategory::kOptimizer), 2 * most + 8 * 64);
  EXPECT_GE(whole.bytes(MemoryCategory::kGradients), frozen);
  EXPECT_GE(whole.bytes(MemoryCategory::kOptimizer), 2 * frozen);
  EXPECT_LT(adapted.use.total, whole.use.total / 3);
}

}  // namespace
}  // namespace tandem::lora_layouts_test
