#include "datasets/token_sequences.h"

#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "core/model/batch.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::token_sequences_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// train.bin: 0, 1, 2, ...; val.bin: 100, 101, ...
TokenSequencesOptions TokenFiles(int train, int val, int64_t context) {
  TokenSequencesOptions options;
  options.folder = testing::TempDir();
  options.context = context;
  const auto write = [&](const std::string& name, int count, uint16_t first) {
    std::vector<uint16_t> tokens(static_cast<size_t>(count));
    std::iota(tokens.begin(), tokens.end(), first);
    std::ofstream(options.folder + "/" + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens.data()), 2 * count);
  };
  write("train.bin", train, 0);
  write("val.bin", val, 100);
  return options;
}

std::vector<int64_t> Values(const at::Tensor& tensor) {
  const auto* values = tensor.const_data_ptr<int64_t>();
  return {values, values + tensor.numel()};
}

std::string ErrorText(const TokenSequencesOptions& options) {
  return std::string(OpenTokenSequences(options).status().message());
}

TEST(TokenSequencesTest, SamplesFollowEachOther) {
  const auto data = OpenTokenSequences(TokenFiles(11, 5, 3));
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->size(), 3);
  EXPECT_THAT((*data)->input_shape(), ElementsAre(3));
  EXPECT_TRUE((*data)->tokens());
  EXPECT_EQ((*data)->classes(), 50257);
  const auto batch = (*data)->Get({2, 0});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->size, 2);
  EXPECT_EQ(batch->inputs.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_THAT(Values(batch->inputs), ElementsAre(6, 7, 8, 0, 1, 2));
  EXPECT_THAT(Values(batch->targets), ElementsAre(7, 8, 9, 1, 2, 3));
}

TEST(TokenSequencesTest, TheSplitIsAnotherFile) {
  TokenSequencesOptions options = TokenFiles(11, 5, 4);
  options.split = Split::kTest;
  const auto data = OpenTokenSequences(options);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ((*data)->size(), 1);
  EXPECT_THAT(Values((*data)->Get({0})->targets),
              ElementsAre(101, 102, 103, 104));
}

// A token more than a sample's is needed: its last target.
TEST(TokenSequencesTest, SizesAtTheEdge) {
  EXPECT_EQ((*OpenTokenSequences(TokenFiles(7, 0, 3)))->size(), 2);
  EXPECT_EQ((*OpenTokenSequences(TokenFiles(6, 0, 3)))->size(), 1);
  EXPECT_EQ((*OpenTokenSequences(TokenFiles(4, 0, 3)))->size(), 1);
  EXPECT_EQ((*OpenTokenSequences(TokenFiles(2, 0, 1)))->size(), 1);
  EXPECT_THAT(ErrorText(TokenFiles(3, 0, 3)),
              HasSubstr("train.bin has 3 tokens, and a sample of context 3 "
                        "needs 4"));
  EXPECT_THAT(ErrorText(TokenFiles(0, 0, 1)), HasSubstr("has 0 tokens"));
}

// //tools:tokenize --validation_fraction=0 writes such a file.
TEST(TokenSequencesTest, AnEmptyValBinIsATestSetOfNoSamples) {
  for (const int64_t context : {1, 3}) {
    TokenSequencesOptions options = TokenFiles(7, 0, context);
    options.split = Split::kTest;
    for (const bool document_masks : {false, true}) {
      options.document_masks = document_masks;
      const auto data = OpenTokenSequences(options);
      ASSERT_TRUE(data.ok()) << data.status();
      EXPECT_EQ((*data)->size(), 0);
      EXPECT_THAT((*data)->input_shape(), ElementsAre(context));
    }
  }
  TokenSequencesOptions options = TokenFiles(7, 2, 3);
  options.split = Split::kTest;
  EXPECT_THAT(ErrorText(options), HasSubstr("val.bin has 2 tokens"));
}

TEST(TokenSequencesTest, AVocabularyThatNobodySaysIsAnothers) {
  TokenSequencesOptions options = TokenFiles(11, 5, 5);
  options.unsaid_vocabulary = 9;
  const auto data = OpenTokenSequences(options);
  EXPECT_EQ((*data)->classes(), 9);
  EXPECT_TRUE((*data)->Get({0}).ok());
  EXPECT_THAT((*data)->Get({1}).status(),
              Says("token 9 is 9, but the vocabulary has 9"));
  options.vocabulary = 10;
  EXPECT_EQ((*OpenTokenSequences(options))->classes(), 10);
}

TEST(TokenSequencesTest, ADigestTellsOtherTokensApart) {
  const std::string digest =
      (*OpenTokenSequences(TokenFiles(11, 5, 3)))->digest();
  EXPECT_EQ(digest.size(), 8u);
  EXPECT_EQ((*OpenTokenSequences(TokenFiles(11, 7, 5)))->digest(), digest);
  EXPECT_NE((*OpenTokenSequences(TokenFiles(12, 5, 3)))->digest(), digest);
}

TEST(TokenSequencesTest, OnlyWhatIsWantedIsRead) {
  const auto data = OpenTokenSequences(TokenFiles(11, 5, 3));
  BatchParts parts;
  parts.inputs = false;
  const auto batch = (*data)->Get({1}, parts);
  EXPECT_FALSE(batch->inputs.defined());
  EXPECT_THAT(Values(batch->targets), ElementsAre(4, 5, 6));
  EXPECT_EQ((*data)->Get({})->inputs.sizes(), at::IntArrayRef({0, 3}));
  EXPECT_EQ((*data)->Get({3}).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(TokenSequencesTest, ASmallerVocabularyIsCheckedTokenByToken) {
  TokenSequencesOptions options = TokenFiles(11, 5, 5);
  options.vocabulary = 8;
  const auto data = OpenTokenSequences(options);
  EXPECT_EQ((*data)->classes(), 8);
  EXPECT_TRUE((*data)->Get({0}).ok());
  EXPECT_THAT((*data)->Get({1}).status(),
              Says("token 8 is 8, but the vocabulary has 8"));
}

// Tokens 0, 1, 2, ..., where each 4 and each 6 ends a document.
TEST(TokenSequencesTest, DocumentsAreToldApart) {
  TokenSequencesOptions options = TokenFiles(11, 5, 5);
  options.document_masks = true;
  options.end_of_text = 6;
  const auto data = OpenTokenSequences(options);
  ASSERT_TRUE(data.ok()) << data.status();
  auto batch = (*data)->Get({1, 0});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(Values(batch->inputs), ElementsAre(5, 6, 7, 8, 9, 0, 1, 2, 3, 4));
  EXPECT_THAT(Values(batch->targets),
              ElementsAre(6, kNoTarget, 8, 9, 10, 1, 2, 3, 4, 5));
  EXPECT_THAT(Values(batch->further_inputs.at(kDocumentBegins).toTensor()),
              ElementsAre(0, 0, 2, 2, 2, 0, 0, 0, 0, 0));
  // The last token of a sample ends one.
  options.end_of_text = 4;
  batch = (*OpenTokenSequences(options))->Get({0});
  EXPECT_THAT(Values(batch->targets), ElementsAre(1, 2, 3, 4, kNoTarget));
  EXPECT_THAT(Values(batch->further_inputs.at(kDocumentBegins).toTensor()),
              ElementsAre(0, 0, 0, 0, 0));
}

TEST(TokenSequencesTest, OnlyThePartsOfDocumentsThatAreWantedAreThere) {
  TokenSequencesOptions options = TokenFiles(11, 5, 5);
  options.document_masks = true;
  options.end_of_text = 6;
  const auto data = *OpenTokenSequences(options);
  const auto inputs = data->Get({1}, {/*inputs=*/true, /*targets=*/false});
  EXPECT_EQ(inputs->further_inputs.size(), 1u);
  EXPECT_FALSE(inputs->targets.defined());
  const auto targets = data->Get({1}, {/*inputs=*/false, /*targets=*/true});
  EXPECT_TRUE(targets->further_inputs.empty());
  EXPECT_THAT(Values(targets->targets), ElementsAre(6, kNoTarget, 8, 9, 10));
}

TEST(TokenSequencesTest, DocumentsThatCannotBeToldApartAreRefused) {
  TokenSequencesOptions options = TokenFiles(11, 5, 5);
  options.document_masks = true;
  EXPECT_THAT(ErrorText(options), HasSubstr("give the end_of_text"));
  options.end_of_text = 50257;
  EXPECT_THAT(ErrorText(options), HasSubstr("none of the 50257 tokens"));
}

TEST(TokenSequencesTest, BadOptionsAreRefused) {
  TokenSequencesOptions options = TokenFiles(11, 5, 0);
  EXPECT_THAT(ErrorText(options), HasSubstr("context 0"));
  options.context = 3;
  options.vocabulary = -1;
  EXPECT_THAT(ErrorText(options), HasSubstr("vocabulary -1"));
  options.vocabulary = 0;
  options.token_bytes = 3;
  EXPECT_THAT(ErrorText(options), HasSubstr("token_bytes 3"));
  options.folder.clear();
  EXPECT_THAT(ErrorText(options), HasSubstr("need a data_dir"));
  options = TokenFiles(11, 5, 3);
  options.folder += "/nowhere";
  EXPECT_EQ(OpenTokenSequences(options).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem::token_sequences_test
