#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "datasets/tokenizers/byte_pair/pre_tokenizer.h"
#include "datasets/tokenizers/byte_pair/splitter.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::oniguruma_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(OnigurumaTest, WhatBothReadAlikeIsTaken) {
  for (const char* const pattern :
       {kGpt2Pattern,
        // Llama 3's, and of GPT-4o's and DeepSeek V3's.
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
        R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{M}]*[\p{Ll}\p{M}]+(?i:'s|'t)?)",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)", "(?i)abc",
        "(?<=a)b(?>c)", "a++|b*+|c?+", "a{2,3}?|a{2,}|{|a{x}", "[]^$]",
        "\\{3}+", "[\\b]"}) {
    EXPECT_TRUE(CheckReadAlike(pattern).ok()) << CheckReadAlike(pattern);
  }
}

TEST(OnigurumaTest, WhatTheyReadOtherwiseIsRefusedByName) {
  for (const auto& [pattern, what] :
       std::vector<std::pair<std::string, std::string>>{
           {"\\p{N}{1,3}+", "reads {1,3}+ otherwise"},
           {"a{3}+", "reads {3}+"},
           {"a{3}?", "reads {3}?"},
           {"a{,3}", "reads {,3}"},
           {"^a", "reads ^"},
           {"a|b$", "reads $"},
           {"\\bword", "reads \\b"},
           {"\\w+", "reads \\w"},
           {"[\\W]", "reads \\W"},
           {"\\pL", "reads \\p"},
           {"[[:punct:]]", "reads [ within brackets"},
           {"(?s).", "reads (?s"},
           {"a(?i)b|c", "reads (?i"},
           {"(?<name>a)", "reads (?<"}}) {
    const absl::Status status = CheckReadAlike(pattern);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(absl::StrCat("expression ", pattern)),
                      HasSubstr(what)));
  }
}

}  // namespace
}  // namespace tandem::oniguruma_test
