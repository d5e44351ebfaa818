#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "datasets/tokenizers/tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::bytes_tokenizer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BytesTokenizerTest, AnyBytesComeBack) {
  const auto tokenizer = OpenTokenizer("bytes");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const auto tokens = (*tokenizer)->Encode(all);
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  ASSERT_EQ(tokens->size(), 256);
  EXPECT_EQ(tokens->front(), 0);
  EXPECT_EQ(tokens->back(), 255);
  EXPECT_EQ((*tokenizer)->Decode(*tokens), all);
}

TEST(BytesTokenizerTest, TheEndOfATextIsATokenAndNoText) {
  const auto tokenizer = OpenTokenizer("bytes");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->vocabulary_size(), 257);
  EXPECT_EQ((*tokenizer)->end_of_text(), 256);
  EXPECT_EQ((*tokenizer)->Decode({'a', 256, 'b', 1000}), "ab");
  EXPECT_TRUE((*tokenizer)->prefix().empty());
  const auto tokens = (*tokenizer)->Encode("h\xC3\xA9");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_THAT(*tokens, ElementsAre('h', 0xC3, 0xA9));
}

TEST(BytesTokenizerTest, UnknownNamesAreErrors) {
  const auto tokenizer = OpenTokenizer("no/such/tokenizer");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_THAT(std::string(tokenizer.status().message()),
              HasSubstr("no/such/tokenizer"));
}

}  // namespace
}  // namespace tandem::bytes_tokenizer_test
