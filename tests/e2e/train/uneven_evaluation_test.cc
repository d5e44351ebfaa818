// Evaluations by replicas that share parameters, of which some have more
// batches, or larger ones, than others: the losses of replicas that share none.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/train/runs.h"

namespace tandem::uneven_evaluation_test {
namespace {

// `layout` evaluates in batches of so many samples of all replicas, which share
// in groups of so many.
struct Row {
  const char* layout;
  int samples;
  int eval_batch_size;
  const char* shared;
};

Events Evaluated(const Row& row, const std::string& shared) {
  return EventsOf(
      RunJobForEvents(Joined(
          Words(
              "--model=gpt_tiny --dataset=synthetic_tokens --context=16 "
              "--batch_size=28 --max_steps=2 --intra_op_threads=1 --save_dir= "
              "--uneven_inputs=join --nodrop_last --timeout=60 "
              "--synthetic_samples=" +
              std::to_string(row.samples) +
              " --eval_batch_size=" + std::to_string(row.eval_batch_size) +
              " " + row.layout + " " + shared),
          TestBackendFlags())),
      "eval");
}

class UnevenEvaluationTest : public testing::TestWithParam<Row> {};

TEST_P(UnevenEvaluationTest, IsThatOfWholeParameters) {
  const Row& row = GetParam();
  const Events whole = Evaluated(row, "--shard=off");
  const Events tested = Evaluated(row, row.shared);
  ASSERT_FALSE(whole.empty());
  ASSERT_EQ(tested.size(), whole.size());
  for (size_t i = 0; i < tested.size(); ++i) {
    EXPECT_EQ(tested[i]["count"], whole[i]["count"]) << i;
    const double loss = whole[i]["loss"];
    EXPECT_NEAR(tested[i]["loss"].get<double>(), loss, 1e-6 * loss) << i;
  }
}

// Without a sample for some of seven replicas; one batch more on some;
// microbatches more on some, in stages and in groups of replicas.
constexpr char kByAll[] = "--shard=parameters --shard_min_num_params=1";
constexpr char kInGroups[] =
    "--shard=parameters --shard_min_num_params=1 --data_shard=2";
INSTANTIATE_TEST_SUITE_P(
    Layouts, UnevenEvaluationTest,
    testing::Values(Row{"--nproc_per_node=7", 30, 64, kByAll},
                    Row{"--nproc_per_node=2", 202, 12, kByAll},
                    Row{"--nproc_per_node=4 --pipe=2", 212, 14, kByAll},
                    Row{"--nproc_per_node=4", 202, 12, kInGroups}));

}  // namespace
}  // namespace tandem::uneven_evaluation_test
