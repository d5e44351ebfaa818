#include "tools/trainer/evaluation/text_bytes.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "datasets/tokenizers/open_tokenizer.h"
#include "gtest/gtest.h"

namespace tandem::text_bytes_test {
namespace {

// Samples of targets that are given.
class Targets : public Dataset {
 public:
  explicit Targets(std::vector<std::vector<int64_t>> rows)
      : rows_(std::move(rows)) {}

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  std::vector<int64_t> input_shape() const override { return {3}; }
  bool tokens() const override { return true; }
  int64_t classes() const override { return 257; }
  absl::StatusOr<Batch> Get(absl::Span<const int64_t> indices,
                            const BatchParts& parts) const override {
    EXPECT_FALSE(parts.inputs);
    Batch batch;
    std::vector<at::Tensor> rows;
    for (const int64_t index : indices) {
      rows.push_back(at::tensor(rows_[static_cast<size_t>(index)]));
    }
    batch.targets = at::stack(rows);
    batch.size = batch.targets.size(0);
    return batch;
  }

 private:
  const std::vector<std::vector<int64_t>> rows_;
};

int64_t CountBytes(const Dataset& data, int64_t samples) {
  const auto tokenizer = OpenTokenizer("bytes");
  EXPECT_TRUE(tokenizer.ok());
  const auto bytes = PredictedBytes(data, samples, **tokenizer);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.value_or(-1);
}

TEST(PredictedBytesTest, EachByteIsOneAndWhatIsNoTextIsNone) {
  // The end of a text (256), what is left out, and numbers that are no token's.
  const Targets data({{0, 255, 65}, {256, 66, kNoTarget}, {257, -1, 67}});
  EXPECT_EQ(CountBytes(data, 0), 0);
  EXPECT_EQ(CountBytes(data, 1), 3);
  EXPECT_EQ(CountBytes(data, 2), 4);
  EXPECT_EQ(CountBytes(data, 3), 5);
}

TEST(PredictedBytesTest, ReadsAllSamplesWhateverTheirNumber) {
  for (const int64_t samples : {63, 64, 65, 131}) {
    const Targets data(std::vector<std::vector<int64_t>>(
        static_cast<size_t>(samples), {65, 66, 67}));
    EXPECT_EQ(CountBytes(data, samples), 3 * samples);
  }
}

// A byte that is one of 256 that are as likely has eight bits, whatever tokens
// it is part of.
TEST(BitsPerByteTest, AreTheBitsOfTheWholeTextOverItsBytes) {
  EXPECT_DOUBLE_EQ(BitsPerByte(std::log(256.0), 7, 7), 8);
  EXPECT_DOUBLE_EQ(BitsPerByte(std::log(65536.0), 5, 10), 8);
  EXPECT_DOUBLE_EQ(BitsPerByte(0, 5, 10), 0);
}

}  // namespace
}  // namespace tandem::text_bytes_test
