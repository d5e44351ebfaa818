#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/shared_statistics.h"
#include "core/model/statistics_records.h"
#include "core/random/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/testing/thrown.h"

namespace tandem::statistics_test {
namespace {

using ::testing::HasSubstr;

// Running statistics of so many features, and a child that may have its own.
class Norm : public torch::nn::Module, public RecordsStatistics {
 public:
  explicit Norm(int64_t features, double momentum = 0.5) : momentum_(momentum) {
    mean_ = register_buffer("running_mean", at::zeros({features}));
    var_ = register_buffer("running_var", at::ones({features}));
    count_ = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
  }
  RunningStatistics running_statistics() const override {
    return {mean_, var_, count_, momentum_};
  }

  const at::Tensor& mean() const { return mean_; }
  const at::Tensor& var() const { return var_; }
  int64_t count() const { return count_.item<int64_t>(); }

 private:
  double momentum_;
  at::Tensor mean_, var_, count_;
};

class Block : public torch::nn::Module {
 public:
  explicit Block(std::shared_ptr<Norm> norm) {
    register_module("norm", std::move(norm));
  }
};

Layer LayerOf(const std::string& name, std::shared_ptr<torch::nn::Module> m) {
  return {name, std::move(m), [](const at::Tensor& x) { return x; }};
}

at::Tensor Statistics(std::vector<float> mean, std::vector<float> variance) {
  return at::stack({at::tensor(mean), at::tensor(variance)});
}

// Two layers: one of one feature, and one of three inside another module.
struct Stage {
  std::shared_ptr<Norm> first = std::make_shared<Norm>(1);
  std::shared_ptr<Norm> second = std::make_shared<Norm>(3, 0.25);
  LayerList layers = {LayerOf("bn1", first), LayerOf("relu", nullptr),
                      LayerOf("block", std::make_shared<Block>(second))};
  StatisticsRecords records{layers};

  void Record(int microbatch) {
    const auto n = static_cast<float>(microbatch + 1);
    records.Record(*first, microbatch, Statistics({n}, {10 * n}));
    records.Record(*second, microbatch,
                   Statistics({n, 2 * n, 3 * n}, {n, n, 4 * n}));
  }
};

TEST(StatisticsRecords, ARecordHasAllMeansThenAllVariances) {
  Stage stage;
  EXPECT_EQ(stage.records.size(), 8);
  stage.records.Begin(2);
  stage.Record(1);
  stage.Record(0);
  const absl::StatusOr<at::Tensor> records = stage.records.Records();
  ASSERT_TRUE(records.ok()) << records.status();
  const at::Tensor expected =
      at::tensor(std::vector<float>{1, 1, 2, 3, 10, 1, 1, 4,  //
                                    2, 2, 4, 6, 20, 2, 2, 8})
          .view({2, 8});
  EXPECT_TRUE(records->equal(expected)) << *records;
}

TEST(StatisticsRecords, RecordingChangesNothing) {
  Stage stage;
  stage.records.Begin(1);
  stage.Record(0);
  EXPECT_TRUE(stage.records.Records().ok());
  EXPECT_TRUE(stage.first->mean().equal(at::zeros({1})));
  EXPECT_TRUE(stage.first->var().equal(at::ones({1})));
  EXPECT_EQ(stage.first->count(), 0);
}

// running = (1 - momentum) * running + momentum * record, twice; all numbers
// are exact.
TEST(StatisticsRecords, ApplyFollowsTheFormulaInTheOrderOfRecords) {
  Stage stage;
  stage.records.Begin(2);
  stage.Record(1);
  stage.Record(0);
  stage.records.Apply(*stage.records.Records());
  EXPECT_TRUE(stage.first->mean().equal(at::tensor({1.25f})));
  EXPECT_TRUE(stage.first->var().equal(at::tensor({12.75f})));
  EXPECT_EQ(stage.first->count(), 2);
  EXPECT_TRUE(
      stage.second->mean().equal(at::tensor({0.6875f, 1.375f, 2.0625f})));
  EXPECT_TRUE(stage.second->var().equal(at::tensor({1.25f, 1.25f, 3.3125f})));
  EXPECT_EQ(stage.second->count(), 2);
}

// Two replicas of two microbatches each end where one of four does.
TEST(StatisticsRecords, RecordsOfSeveralReplicasAreTakenInByAll) {
  Stage whole;
  whole.records.Begin(4);
  for (int i = 0; i < 4; ++i) whole.Record(i);
  const at::Tensor expected = *whole.records.Records();
  whole.records.Apply(expected);

  Stage replica;
  replica.records.Begin(2);
  replica.Record(0);
  replica.Record(1);
  const at::Tensor mine = *replica.records.Records();
  const at::Tensor theirs = expected.narrow(0, 2, 2);
  replica.records.Apply(at::cat({mine, theirs}));
  EXPECT_TRUE(replica.first->mean().equal(whole.first->mean()));
  EXPECT_TRUE(replica.second->var().equal(whole.second->var()));
  EXPECT_EQ(replica.second->count(), 4);
}

TEST(StatisticsRecords, BeginForgets) {
  Stage stage;
  stage.records.Begin(2);
  stage.Record(0);
  stage.Record(1);
  stage.records.Begin(1);
  EXPECT_FALSE(stage.records.Records().ok());
  stage.Record(0);
  EXPECT_EQ(stage.records.Records()->size(0), 1);
}

TEST(StatisticsRecords, AMissingRecordIsNamed) {
  Stage stage;
  stage.records.Begin(2);
  stage.Record(0);
  stage.records.Record(*stage.first, 1, Statistics({1}, {1}));
  const absl::Status status = stage.records.Records().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("block.norm has recorded no statistics of "
                        "microbatch 1"));
}

TEST(StatisticsRecords, AFrozenLayerNeitherRecordsNorChanges) {
  Stage stage;
  stage.second->eval();
  stage.records.Begin(1);
  stage.records.Record(*stage.first, 0, Statistics({1}, {1}));
  const absl::StatusOr<at::Tensor> records = stage.records.Records();
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->size(1), 8);
  stage.records.Apply(*records);
  EXPECT_EQ(stage.first->count(), 1);
  EXPECT_EQ(stage.second->count(), 0);
  EXPECT_TRUE(stage.second->var().equal(at::ones({3})));
}

TEST(StatisticsRecords, RefusesASecondRecordAndAForeignLayer) {
  Stage stage;
  stage.records.Begin(1);
  stage.Record(0);
  EXPECT_THAT(Thrown([&] { stage.Record(0); }),
              HasSubstr("bn1 runs twice in microbatch 0"));
  EXPECT_THAT(Thrown([&] { stage.Record(1); }),
              HasSubstr("bn1 records microbatch 1 of 1"));
  const Norm other(1);
  EXPECT_THAT(
      Thrown([&] { stage.records.Record(other, 0, Statistics({1}, {1})); }),
      HasSubstr("another stage"));
}

TEST(StatisticsRecords, WithoutSuchLayersThereIsNothingToDo) {
  StatisticsRecords records({LayerOf("relu", nullptr)});
  EXPECT_EQ(records.size(), 0);
  records.Begin(3);
  const absl::StatusOr<at::Tensor> none = records.Records();
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->sizes().vec(), (std::vector<int64_t>{3, 0}));
  records.Apply(*none);
}

TEST(StatisticsRecords, AModuleInTwoLayersIsOne) {
  const auto norm = std::make_shared<Norm>(7);
  const StatisticsRecords records({LayerOf("a", norm), LayerOf("b", norm)});
  EXPECT_EQ(records.size(), 14);
}

SharedStatistics Of(int64_t count) {
  SharedStatistics statistics;
  statistics.count = count;
  return statistics;
}

// 0: nothing is replayed.
int64_t Next() {
  const std::optional<SharedStatistics> next = KeptStatistics::Next();
  return next.has_value() ? next->count : 0;
}

TEST(KeptStatisticsTest, AreReplayedInTheirOrderAsOftenAsOneLikes) {
  KeptStatistics kept;
  KeptStatistics::Note(Of(9));  // nobody records
  {
    const KeptStatistics::Recording recording(&kept);
    EXPECT_EQ(Next(), 0);
    KeptStatistics::Note(Of(1));
    KeptStatistics::Note(Of(2));
  }
  KeptStatistics::Note(Of(9));
  for (int pass = 0; pass < 2; ++pass) {
    const KeptStatistics::Replay replay(&kept);
    EXPECT_EQ(Next(), 1);
    EXPECT_EQ(Next(), 2);
    EXPECT_THROW(Next(), c10::Error);
  }
  EXPECT_EQ(Next(), 0);
}

TEST(KeptStatisticsTest, RecordingsNest) {
  KeptStatistics outer, inner;
  {
    const KeptStatistics::Recording all(&outer);
    KeptStatistics::Note(Of(1));
    const KeptStatistics::Recording some(&inner);
    KeptStatistics::Note(Of(2));
  }
  const KeptStatistics::Replay whole(&outer);
  EXPECT_EQ(Next(), 1);
  {
    const KeptStatistics::Replay part(&inner);
    EXPECT_EQ(Next(), 2);
  }
  EXPECT_EQ(Next(), 2);
}

TEST(KeptStatisticsTest, ARecordingKeepsWhatItsReplayGives) {
  KeptStatistics around, outer, inner;
  {
    const KeptStatistics::Recording recording(&outer);
    KeptStatistics::Note(Of(1));
  }
  {
    const KeptStatistics::Recording none_of_it(&around);
    const KeptStatistics::Replay replay(&outer);
    const KeptStatistics::Recording recording(&inner);
    KeptStatistics::Note(Of(Next()));
  }
  const KeptStatistics::Replay replay(&inner);
  EXPECT_EQ(Next(), 1);
  const KeptStatistics::Replay nothing(&around);
  EXPECT_THROW(Next(), c10::Error);
}

// Statistics of values [n, channels], which may be none.
GatheredStatistics Gathered(const at::Tensor& values) {
  GatheredStatistics part;
  part.count = values.size(0);
  if (part.count == 0) return part;
  part.mean = values.mean(0);
  part.squares = (values - part.mean).square().sum(0);
  return part;
}

TEST(GatheredStatisticsTest, PartsAreTheWhole) {
  const at::Tensor values =
      at::randn({12, 3}, GeneratorFor(1, "values"), at::kDouble) + 1e4;
  GatheredStatistics sum;
  for (const at::Tensor& part : values.split_with_sizes({0, 1, 5, 0, 4, 2})) {
    Add(Gathered(part), &sum);
  }
  const GatheredStatistics whole = Gathered(values);
  EXPECT_EQ(sum.count, 12);
  EXPECT_TRUE(at::allclose(sum.mean, whole.mean, 1e-14));
  EXPECT_TRUE(at::allclose(sum.squares, whole.squares, 1e-9));
}

TEST(GatheredStatisticsTest, ASumHasMemoryOfItsOwn) {
  const GatheredStatistics part = Gathered(at::ones({2, 3}, at::kDouble));
  GatheredStatistics sum;
  Add(part, &sum);
  Add(Gathered(at::zeros({2, 3}, at::kDouble)), &sum);
  EXPECT_TRUE(at::equal(part.mean, at::ones({3}, at::kDouble)));
}

at::Tensor RunningMeanAfterTwo(std::optional<double> momentum) {
  at::Tensor mean = at::zeros({2}), variance = at::ones({2});
  at::Tensor batches = at::zeros({}, at::kLong);
  for (const double now : {4.0, 2.0}) {
    const at::Tensor values = at::full({2}, now, at::kDouble);
    UpdateRunningStatistics(values, values, momentum, mean, variance, batches);
  }
  EXPECT_EQ(batches.item<int64_t>(), 2);
  return mean;
}

TEST(GatheredStatisticsTest, RunningStatisticsMoveByMomentumOrAreMeans) {
  EXPECT_TRUE(at::equal(RunningMeanAfterTwo(0.25), at::full({2}, 1.25)));
  EXPECT_TRUE(at::equal(RunningMeanAfterTwo(std::nullopt), at::full({2}, 3.)));
}

}  // namespace
}  // namespace tandem::statistics_test
