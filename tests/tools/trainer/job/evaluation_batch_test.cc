#include <cstdint>
#include <memory>
#include <vector>

#include "datasets/synthetic.h"
#include "gtest/gtest.h"
#include "tools/trainer/job/data.h"

namespace tandem::evaluation_batch_test {
namespace {

std::unique_ptr<Dataset> Images(const std::vector<int64_t>& shape) {
  SyntheticImagesOptions options;
  options.shape = shape;
  options.length = 1;
  return MakeSyntheticImages(options).value();
}

std::unique_ptr<Dataset> Tokens(int64_t vocabulary, int64_t context) {
  SyntheticTokensOptions options;
  options.vocabulary = vocabulary;
  options.context = context;
  options.length = 1;
  return MakeSyntheticTokens(options).value();
}

int64_t DefaultOf(const std::vector<int64_t>& shape, int64_t training) {
  return EvaluationBatchSize(TrainOptions(), training, *Images(shape));
}

TEST(EvaluationBatchTest, SmallSamplesComeByAMebibyteOr256) {
  EXPECT_EQ(DefaultOf({1, 28, 28}, 64), 256);
  EXPECT_EQ(DefaultOf({10}, 1), 256);
  EXPECT_EQ(DefaultOf({}, 1), 256);
  // Samples have 12 KiB each, and 588.
  EXPECT_EQ(DefaultOf({3, 32, 32}, 8), 85);
  EXPECT_EQ(DefaultOf({3, 224, 224}, 1), 1);
}

TEST(EvaluationBatchTest, IsTheTrainingsWhereThatIsMore) {
  EXPECT_EQ(DefaultOf({1, 28, 28}, 512), 512);
  EXPECT_EQ(DefaultOf({3, 224, 224}, 32), 32);
  EXPECT_EQ(DefaultOf({3, 1024, 1024}, 2), 2);
}

TEST(EvaluationBatchTest, IsTheTrainingsOfTokens) {
  EXPECT_EQ(EvaluationBatchSize(TrainOptions(), 4, *Tokens(256, 8)), 4);
  EXPECT_EQ(EvaluationBatchSize(TrainOptions(), 64, *Tokens(50257, 1024)), 64);
}

TEST(EvaluationBatchTest, LogitsOfAnEvaluationAloneTake256MebibytesAtMost) {
  TrainOptions options;
  options.eval_only = true;
  const auto size_of = [&](int64_t vocabulary, int64_t context) {
    return EvaluationBatchSize(options, 64, *Tokens(vocabulary, context));
  };
  EXPECT_EQ(size_of(50257, 1024), 1);   // 196 MiB each
  EXPECT_EQ(size_of(50257, 128), 10);   // 24.5 MiB each
  EXPECT_EQ(size_of(1024, 1024), 64);   // 4 MiB each
  EXPECT_EQ(size_of(128256, 1024), 1);  // 501 MiB each
  EXPECT_EQ(size_of(256, 8), 64);
  options.eval_batch_size = 7;
  EXPECT_EQ(size_of(50257, 1024), 7);
}

TEST(EvaluationBatchTest, IsWhatWasAskedFor) {
  TrainOptions options;
  options.eval_batch_size = 7;
  EXPECT_EQ(EvaluationBatchSize(options, 64, *Images({1, 28, 28})), 7);
}

}  // namespace
}  // namespace tandem::evaluation_batch_test
