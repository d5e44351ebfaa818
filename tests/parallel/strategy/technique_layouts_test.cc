// The table of techniques and layouts: rows whose models are for it alone, and
// the models of the registry. Other rows stand beside their models.

#include <ATen/Tensor.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/model/layer_list.h"
#include "models/chunked_loss.h"
#include "models/classification_loss.h"
#include "tests/parallel/matrix/matrix_problem.h"
#include "tests/parallel/strategy/lab_models.h"
#include "tests/parallel/strategy/strategy_lab.h"
#include "tests/parallel/strategy/technique_rows.h"

namespace tandem::technique_layouts_test {
namespace {

using Rows = std::vector<TechniqueRow>;

constexpr double kLabelSmoothing = 0.1;

// Names of rows have no spaces: "Gpt", "Gpt6Groups".
std::string WithGroups(const std::string& name, int groups) {
  return groups == 0 ? name : absl::StrCat(name, groups, "Groups");
}

LabJob JobOf(const std::function<LayerSpecs()>& specs, const BatchShape& shape,
             int64_t size, uint64_t seed, const LabChange& change) {
  LabJob job;
  job.specs = specs;
  job.loss = CrossEntropy;
  job.change = [=](MeshStrategyOptions& options) {
    options.seed = seed;
    options.reproducible = true;
    change(options);
  };
  job.batch = [=](int step) { return RandomBatch(shape, size, seed, step); };
  return job;
}

// A model of the registry in several buckets.
LabJob RegistryJob(const std::string& model, const LabChange& change) {
  return ModelJob(model, /*size=*/24, /*steps=*/3, [=](auto& options) {
    options.ddp.bucket_cap_mb = 1.0 / 1024;
    change(options);
  });
}

Rows RegistryRows() {
  Rows rows;
  for (const std::string model : {"mlp_dropout", "gpt_tiny_tied"}) {
    for (const int groups : {0, 6}) {
      // Groups of microbatches need whole ones on each replica, in one order.
      const std::string more =
          groups == 0 ? ", gpipe 3x1x1, gpipe 1x3x1, 1f1b 4x1x1" : "";
      rows.push_back(
          {WithGroups(absl::StrCat("Reproducible_", model), groups),
           LabLayouts("1f1b 2x1x1, 1f1b 1x1x2, zb_h1 1x2x1, zb_h1 2x1x2, "
                      "1f1b 3x2x1, zb_v 2x1x2x2, interleaved_1f1b 2x2x1x2, "
                      "looped_bfs 2x1x2x2" +
                      more),
           Always(RegistryJob(model, [=](auto& options) {
             options.reproducible = true;
             options.gradient_groups = groups;
             options.clip_norm = 0.5;
           }))});
    }
  }
  for (const std::string model : {"mlp_small", "gpt_tiny_tied"}) {
    TechniqueRow row = {
        absl::StrCat("UpdatesLast_", model),
        LabLayouts("1f1b 2x1x1, 1f1b 2x1x2, zb_v 2x1x2x2, gpipe 2x2x2"),
        Always(RegistryJob(
            model, [](auto& options) { options.updates_last = true; }))};
    row.without = RegistryJob(model, [](auto&) {});
    rows.push_back(row);
  }
  return rows;
}

Rows WeightPenaltyRows() {
  Rows rows;
  for (const int groups : {0, 4}) {
    rows.push_back(
        {WithGroups("WeightPenalty", groups),
         LabLayouts("zb_h1 1x1x1, zb_h1 1x1x2, zb_h1 1x1x4, zb_v 1x1x2x2, "
                    "zb_v 1x1x4x2, 1f1b 1x1x4, zb_h1 2x1x4, zb_v 4x1x2x2"),
         Always(
             JobOf(PenalisedModel, {{kModelWidth}, kModelWidth}, 24, 2,
                   [=](auto& options) { options.gradient_groups = groups; }))});
  }
  return rows;
}

Rows TiedWeightRows() {
  const auto row = [](int users, bool chained, bool reproducible) {
    LabJob job = JobOf([=] { return TiedModel(users, chained); },
                       {{kModelWidth}, 5}, 24, /*seed=*/1,
                       [=](auto& options) {
                         options.optimizer = SgdOptions{0.9};
                         options.clip_norm = 0.3;
                         options.reproducible = reproducible;
                         options.seed = 4;
                       });
    job.rate = 0.05;
    return TechniqueRow{
        absl::StrCat("TiedTo", users, chained ? "Chained" : "",
                     reproducible ? "" : "NotReproducible"),
        LabLayouts("1f1b 2x1x1, 1f1b 1x1x2, 1f1b 1x2x1, 1f1b 1x1x3, "
                   "1f1b 1x3x1, 1f1b 2x3x1, 1f1b 3x2x1, 1f1b 2x1x3"),
        Always(job)};
  };
  Rows rows;
  for (const bool chained : {false, true}) {
    rows.push_back(row(3, chained, true));
    rows.push_back(row(5, chained, true));
    // The uncut model has one tensor for them, no copies.
    rows.push_back(row(4, chained, false));
    rows.back().tolerance = LabTolerance{1e-4 / 24, 1e-4, 1e-6};
  }
  return rows;
}

// Where it is cut shows in no bit, however its tensors lie in memory.
Rows TransposedTensorRows() {
  return {{"TransposedTensors",
           LabLayouts("1f1b 1x1x1, 1f1b 1x1x2, gpipe 1x1x7, 1f1b 1x2x1, "
                      "zb_h1 1x3x1, 1f1b 2x1x1, 1f1b 2x2x1, "
                      "1f1b 1x2x1 always",
                      /*microbatches=*/4),
           Always(JobOf(SmallVisionTransformer, {{3, 32, 32}, 8}, 16,
                        /*seed=*/7, [](auto&) {})),
           LabLayoutNamed("1f1b 1x1x1", 4)}};
}

// A technique with and without a sharded optimizer, of two models, in layouts
// of every kind. `change` is told the model; `test` is LabJob's.
Rows ShardedAndNotRows(
    const std::string& technique, int test,
    const std::function<void(const std::string&, MeshStrategyOptions&)>&
        change) {
  Rows rows;
  for (const std::string model : {"mlp_dropout", "gpt_tiny_tied"}) {
    for (const auto sharding : {Sharding::kOff, Sharding::kOptimizer}) {
      LabJob job = RegistryJob(model, [=](auto& options) {
        change(model, options);
        options.reproducible = true;
        options.shard = sharding;
      });
      job.test = test;
      const bool shares = sharding == Sharding::kOptimizer;
      rows.push_back(
          {absl::StrCat(technique, "_", model, shares ? "Sharded" : ""),
           LabLayouts("sequential 1x1x1, 1f1b 2x1x1, 1f1b 1x1x2, zb_h1 1x2x1, "
                      "zb_h1 2x1x2, 1f1b 3x2x1, zb_v 2x1x2x2, "
                      "interleaved_1f1b 2x2x1x2"),
           Always(job)});
    }
  }
  return rows;
}

// Evaluation is of the averages.
Rows EmaRows() {
  return ShardedAndNotRows("Ema", /*test=*/9, [](const auto&, auto& options) {
    options.ema_decay = 0.75;
    options.optimizer = AdamWOptions();
  });
}

// Matrices of hidden layers by Muon, the rest by AdamW.
Rows MuonRows() {
  return ShardedAndNotRows("Muon", /*test=*/-1,
                           [](const std::string& model, auto& options) {
                             MuonAndAdamW(model, options);
                             options.clip_norm = 0.5;
                           });
}

struct Chunked {
  bool is_gpt;
  bool tied;
  std::optional<int64_t> ignored;  // a target that is no prediction

  std::string Name() const {
    return absl::StrCat(is_gpt ? "Gpt" : "Llama", tied ? "Tied" : "",
                        ignored ? "Ignoring" : "");
  }
};

// `chunk` 0: the plain loss.
LabJob ChunkedJob(const Chunked& chunked, int64_t chunk) {
  LabJob job;
  job.specs = [=] {
    LayerSpecs specs = chunked.is_gpt ? SmallGpt(20, chunked.tied)
                                      : SmallLlama(20, chunked.tied);
    return chunk == 0 ? specs : *WithoutLogits(std::move(specs));
  };
  job.loss = chunked.ignored ? CrossEntropyIgnoring(*chunked.ignored)
                             : LossFunction(CrossEntropy);
  if (chunk > 0) {
    job.loss = ChunkedCrossEntropy("lm_head.weight", chunk, chunked.ignored);
  }
  job.change = [](MeshStrategyOptions& options) {
    options.optimizer = SgdOptions{0.9};
    options.clip_norm = 0.1;
    options.reproducible = true;
  };
  job.batch = [](int step) { return TokenBatch(20, /*size=*/16, step); };
  job.sparing = true;
  job.steps = 2;
  return job;
}

// Its last stage on a rank of its own, on one of several devices of a rank, or
// once in each replica: the bits of one device; and the plain loss.
Rows ChunkedLossRows() {
  const std::string few = "sequential 2x1x1, 1f1b 1x2x1, 1f1b 2x2x1";
  const std::string all =
      few +
      ", sequential 4x1x1, 1f1b 1x1x2, gpipe 1x4x1, 1f1b 1x2x2, "
      "zb_h1 1x2x1, zb_h1 2x1x2, 1f1b 2x2x1 always";
  Rows rows;
  for (const bool is_gpt : {true, false}) {
    for (const bool tied : {false, true}) {
      for (const std::optional<int64_t> ignored :
           {std::optional<int64_t>(), std::optional<int64_t>(3)}) {
        const Chunked chunked = {is_gpt, tied, ignored};
        const bool everywhere = !ignored && tied == is_gpt;
        // A microbatch has 12 tokens.
        rows.push_back({"ChunkedLossIn" + chunked.Name(),
                        LabLayouts(everywhere ? all : few, 8),
                        Always(ChunkedJob(chunked, /*chunk=*/5)),
                        LabLayoutNamed("sequential 1x1x1", 8)});
        for (const int64_t chunk : {1, 5, 100}) {
          TechniqueRow plain = {
              absl::StrCat("ChunksOf", chunk, "PlainLossIn", chunked.Name()),
              LabLayouts("1f1b 2x2x1", 8), Always(ChunkedJob(chunked, chunk))};
          plain.without = ChunkedJob(chunked, 0);
          plain.tolerance.emplace();
          rows.push_back(plain);
        }
      }
    }
  }
  return rows;
}

// torch.nn.functional.cross_entropy, evaluated without smoothing.
LossResult PytorchsSmoothedLoss(const at::Tensor& outputs,
                                const at::Tensor& targets) {
  const at::Tensor logits = outputs.flatten(0, 1);
  const at::Tensor labels = targets.flatten();
  LossResult result = CrossEntropy(outputs, targets);
  result.loss =
      at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Mean,
                             /*ignore_index=*/-100, kLabelSmoothing);
  const at::Tensor sum = result.loss.detach().to(at::kDouble) *
                         static_cast<double>(result.score.count);
  if (result.sums.defined()) {  // on a device, which nobody waits for
    result.sums.select(0, 0).copy_(sum);
  } else {
    result.score.loss_sum = sum.item<double>();
  }
  return result;
}

LabJob SmoothedJob(const LossFunction& loss) {
  LabJob job =
      ChunkedJob({/*is_gpt=*/true, /*tied=*/true, std::nullopt}, /*chunk=*/0);
  job.loss = loss;
  job.test = 9;
  return job;
}

// One device's bits in every layout, and PyTorch's loss.
Rows LabelSmoothingRows() {
  const std::string layouts =
      "sequential 2x1x1, 1f1b 1x2x1, zb_h1 2x1x2, 1f1b 2x2x1 always";
  Rows rows;
  for (const int64_t ignored : {-1, 3}) {  // no target is -1
    rows.push_back(
        {absl::StrCat("LabelSmoothing", ignored < 0 ? "" : "Ignoring"),
         LabLayouts(layouts, 8),
         Always(SmoothedJob(SmoothedCrossEntropy(kLabelSmoothing, ignored))),
         LabLayoutNamed("sequential 1x1x1", 8)});
  }
  TechniqueRow pytorchs = {
      "LabelSmoothingIsPytorchs", LabLayouts("sequential 1x1x1, 1f1b 2x2x1", 8),
      Always(SmoothedJob(SmoothedCrossEntropy(kLabelSmoothing)))};
  pytorchs.without = SmoothedJob(
      LossFunction::EvaluatedBy(PytorchsSmoothedLoss, CrossEntropy));
  pytorchs.tolerance.emplace();
  rows.push_back(pytorchs);
  return rows;
}

Rows AllRows() {
  Rows all;
  for (const Rows& rows :
       {RegistryRows(), WeightPenaltyRows(), TiedWeightRows(),
        TransposedTensorRows(), EmaRows(), MuonRows(), ChunkedLossRows(),
        LabelSmoothingRows()}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Table, TechniqueTest, testing::ValuesIn(AllRows()),
                         RowName);

// No cell is lost by a row that has fewer columns.
TEST(TechniqueTableTest, HasItsCells) {
  size_t cells = 0;
  for (const TechniqueRow& row : AllRows()) cells += row.columns.size();
  EXPECT_EQ(cells, (2u * (11 + 8) + 2 * 4) + 2 * 8 + (4 + 2) * 8 + 8 + 4 * 8 +
                       4 * 8 + (2 * 10 + 6 * 3 + 8 * 3) + (2 * 4 + 2));
}

TEST(TechniqueTableTest, TransposedTensorsAre) {
  const LayerList layers = MakeLayers(SmallVisionTransformer(), 1);
  EXPECT_FALSE(
      layers.front().forward(at::randn({2, 3, 32, 32})).is_contiguous());
}

}  // namespace
}  // namespace tandem::technique_layouts_test
