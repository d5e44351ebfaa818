// Shards of tokens: one data set, in the order of their names.

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/model/batch.h"
#include "core/testing/statuses.h"
#include "datasets/token_sequences.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::token_shards_test {
namespace {

using ::testing::ElementsAre;

class TokenShardsTest : public testing::Test {
 protected:
  TokenShardsTest() {
    options_.folder = absl::StrCat(testing::TempDir(), "/token_shards");
    options_.context = 3;
    std::filesystem::remove_all(options_.folder);
    std::filesystem::create_directories(options_.folder);
  }

  // nanoGPT's: numbers from `first` on, of two bytes each, as llm.c writes them
  // behind a header.
  void Write(const std::string& name, int count, int first,
             bool llm_c = false) const {
    std::string bytes;
    if (llm_c) {
      std::vector<int32_t> header(256);
      header[0] = 20240520, header[1] = 1, header[2] = count;
      bytes.assign(reinterpret_cast<const char*>(header.data()), 1024);
    }
    for (int i = 0; i < count; ++i) {
      const auto token = static_cast<uint16_t>(first + i);
      bytes.append(reinterpret_cast<const char*>(&token), sizeof(token));
    }
    std::ofstream(options_.folder + "/" + name, std::ios::binary) << bytes;
  }

  absl::Status Refusal() const { return OpenTokenSequences(options_).status(); }

  TokenSequencesOptions options_;
};

std::vector<int64_t> Values(const at::Tensor& tensor) {
  const auto* values = tensor.const_data_ptr<int64_t>();
  return {values, values + tensor.numel()};
}

TEST_F(TokenShardsTest, SamplesFollowInTheOrderOfNames) {
  Write("fineweb_train_000002.bin", 8, 200, true);
  Write("fineweb_train_000001.bin", 12, 100, true);
  Write("fineweb_train_000003.bin", 3, 300, true);  // less than a sample
  Write("fineweb_train_000004.bin", 4, 400, true);
  Write("fineweb_val_000000.bin", 5, 900, true);
  Write("training_notes.bin", 1, 0);
  Write("train_notes.txt", 1, 0);
  const auto data = OpenTokenSequences(options_);
  ASSERT_TRUE(data.ok()) << data.status();
  // (12 - 1) / 3, (8 - 1) / 3, none and one: no sample crosses.
  EXPECT_EQ((*data)->size(), 6);
  const auto batch = (*data)->Get({0, 1, 2, 3, 4, 5});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(Values(batch->inputs),
              ElementsAre(100, 101, 102, 103, 104, 105, 106, 107, 108, 200, 201,
                          202, 203, 204, 205, 400, 401, 402));
  EXPECT_THAT(Values((*data)->Get({5, 3})->targets),
              ElementsAre(401, 402, 403, 201, 202, 203));

  options_.split = Split::kTest;
  const auto test = OpenTokenSequences(options_);
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ((*test)->size(), 1);
  EXPECT_THAT(Values((*test)->Get({0})->inputs), ElementsAre(900, 901, 902));
}

TEST_F(TokenShardsTest, NamesBeginWithTheSetOrHaveItInTheMiddle) {
  Write("train_1.bin", 4, 10);
  Write("edu_train_2.bin", 4, 20);
  Write("val.bin", 4, 30);
  const auto data = OpenTokenSequences(options_);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(Values((*data)->Get({0, 1})->inputs),
              ElementsAre(20, 21, 22, 10, 11, 12));
  // Each set is a file, or shards, by itself.
  options_.split = Split::kTest;
  EXPECT_EQ((*OpenTokenSequences(options_))->size(), 1);
}

TEST_F(TokenShardsTest, DocumentsAreToldApartInEachShard) {
  Write("train_1.bin", 4, 10);
  Write("train_2.bin", 7, 20);
  options_.document_masks = true;
  options_.end_of_text = 21;
  const auto data = OpenTokenSequences(options_);
  ASSERT_TRUE(data.ok()) << data.status();
  const auto batch = (*data)->Get({1, 2});
  EXPECT_THAT(Values(batch->inputs), ElementsAre(20, 21, 22, 23, 24, 25));
  EXPECT_THAT(Values(batch->targets),
              ElementsAre(21, kNoTarget, 23, 24, 25, 26));
  EXPECT_THAT(Values(batch->further_inputs.at(kDocumentBegins).toTensor()),
              ElementsAre(0, 0, 2, 0, 0, 0));
}

TEST_F(TokenShardsTest, TheDigestIsOfAllShards) {
  Write("train_1.bin", 4, 10);
  Write("train_2.bin", 4, 20);
  const std::string before = (*OpenTokenSequences(options_))->digest();
  EXPECT_EQ((*OpenTokenSequences(options_))->digest(), before);
  Write("train_2.bin", 4, 21);
  EXPECT_NE((*OpenTokenSequences(options_))->digest(), before);
}

TEST_F(TokenShardsTest, RefusesAFileBesideShards) {
  Write("train.bin", 4, 10);
  Write("fineweb_train_1.bin", 4, 10);
  EXPECT_THAT(Refusal(),
              InvalidArgument("both train.bin and fineweb_train_1.bin"));
}

TEST_F(TokenShardsTest, RefusesShardsOfDifferentFormats) {
  Write("train_1.bin", 4, 10);
  Write("train_2.bin", 4, 10, /*llm_c=*/true);
  EXPECT_THAT(Refusal(),
              InvalidArgument("train_1.bin is without a header",
                              "train_2.bin is llm.c's, 2 bytes a token"));
}

TEST_F(TokenShardsTest, RefusesADamagedShardByName) {
  Write("train_1.bin", 4, 10, true);
  Write("train_2.bin", 4, 10, true);
  std::filesystem::resize_file(options_.folder + "/train_2.bin", 1030);
  EXPECT_THAT(Refusal(),
              StatusIs(absl::StatusCode::kDataLoss, "train_2.bin", "1030"));
}

TEST_F(TokenShardsTest, OneShardHasTheTokensOfASample) {
  Write("train_1.bin", 3, 10);
  Write("train_2.bin", 3, 20);
  EXPECT_THAT(Refusal(), InvalidArgument("train_1.bin and 1 more have 6 tokens",
                                         "context 3 needs 4"));
}

TEST_F(TokenShardsTest, WithoutEitherTheFileIsMissing) {
  EXPECT_THAT(Refusal(), StatusIs(absl::StatusCode::kNotFound, "train.bin"));
  options_.folder += "/none";
  EXPECT_THAT(Refusal(),
              StatusIs(absl::StatusCode::kNotFound, "none/train.bin"));
}

}  // namespace
}  // namespace tandem::token_shards_test
