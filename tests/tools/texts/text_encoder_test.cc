#include "tools/texts/text_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "datasets/tokenizers/tokenizer.h"
#include "tools/texts/document_reader.h"

namespace tandem::text_encoder_test {
namespace {

using testing::ElementsAre;
using Json = nlohmann::json;
using Tokens = std::vector<uint32_t>;

constexpr char kText[] = "ab\n\ncd ef\tg\r\nh\ni";

TEST(CutPlacesTest, TheBestKindComesFirst) {
  EXPECT_THAT(CutPlaces(kText, 0, 100, 100),
              ElementsAre(4, 13, 15,      // a line begins
                          3,              // an empty one does
                          2, 11, 14,      // a line ends
                          6, 9,           // other white space
                          1, 5, 7, 8, 10  // and the rest
                          ));
}

TEST(CutPlacesTest, BetweenBoundsAndSoManyOfAKind) {
  EXPECT_THAT(CutPlaces(kText, 5, 9, 1), ElementsAre(6, 5));
  EXPECT_THAT(CutPlaces(kText, 4, 4, 9), ElementsAre(4));
  EXPECT_THAT(CutPlaces(kText, 12, 12, 9), ElementsAre());  // CR | LF
  EXPECT_THAT(CutPlaces(kText, 16, 99, 9), ElementsAre());
  EXPECT_THAT(CutPlaces("", 0, 9, 9), ElementsAre());
  EXPECT_THAT(CutPlaces("a", 0, 9, 9), ElementsAre());
}

TEST(CutPlacesTest, NeverWithinACharacter) {
  EXPECT_THAT(CutPlaces("\u00e9\u4f60\U0001F600x", 0, 99, 99),
              ElementsAre(2, 5, 9));
  EXPECT_THAT(CutPlaces(std::string(9, '\x80'), 0, 99, 99), ElementsAre());
}

// Pieces are compared with the whole text, encoded at once.
constexpr char kData[] = "tests/datasets/tokenizers/testdata/";

struct Case {
  std::string name;
  std::unique_ptr<Tokenizer> tokenizer;
};

std::unique_ptr<Tokenizer> Open(const std::string& path) {
  auto tokenizer = OpenTokenizer(path);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

// Llama 3's in small, cut by DeepSeek V3's expressions, with NFC.
std::unique_ptr<Tokenizer> DeepSeeks() {
  std::ifstream file(absl::StrCat(kData, "llama3/tokenizer.json"));
  Json json =
      Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  json["normalizer"] = {{"type", "NFC"}};
  Json parts = Json::array();
  for (const char* const pattern :
       {"\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)"
        R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
        R"(\s*[\r\n]+|\s+(?!\S)|\s+)"}) {
    parts.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  parts.push_back(json["pre_tokenizer"]["pretokenizers"].back());
  json["pre_tokenizer"]["pretokenizers"] = parts;
  const std::string folder = testing::TempDir() + "/deepseek";
  mkdir(folder.c_str(), 0700);
  std::ofstream(folder + "/tokenizer.json") << json.dump();
  return Open(folder);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  cases.push_back({"bytes", Open("bytes")});
  cases.push_back({"gpt2", Open(absl::StrCat(kData, "gpt2"))});
  cases.push_back({"llama3", Open(absl::StrCat(kData, "llama3"))});
  cases.push_back({"deepseek", DeepSeeks()});
  return cases;
}

// Words of `known`, in an order of their own.
std::string Mixed(const std::vector<std::string>& known, size_t bytes,
                  uint32_t seed) {
  std::minstd_rand draw(seed);
  std::string text;
  while (text.size() < bytes) text += known[draw() % known.size()];
  return text;
}

struct Result {
  Tokens tokens;
  std::string text;
  int pieces = 0;
};

// In blocks that end anywhere.
Result EncodedInPieces(const Tokenizer& tokenizer, const std::string& text,
                       const TextEncoderOptions& options) {
  Result result;
  TextEncoder encoder(
      tokenizer, options,
      [&](absl::string_view piece, absl::Span<const uint32_t> tokens) {
        result.text.append(piece.data(), piece.size());
        result.tokens.insert(result.tokens.end(), tokens.begin(), tokens.end());
        ++result.pieces;
        return absl::OkStatus();
      });
  for (size_t at = 0; at < text.size(); at += 97) {
    EXPECT_TRUE(encoder.Add(absl::string_view(text).substr(at, 97)).ok());
  }
  EXPECT_TRUE(encoder.Finish().ok());
  return result;
}

TextEncoderOptions Short() {
  TextEncoderOptions options;
  options.piece_bytes = 300;
  options.search_bytes = 150;
  options.behind_bytes = 400;
  return options;
}

TEST(TextEncoderTest, PiecesHaveTheTokensOfTheWhole) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> scripts =
      {{"lines", {"The ", "it's", " we'll", "\n", "  if x:\n", "12345", "!?"}},
       {"crlf", {"A line", " of two.", "\r\n", "\r\n\r\n", "\t7", "\r\n  - "}},
       {"cr", {"word ", "other", "\r", "\r\r", "'s"}},
       {"chinese",
        {"\u4f60\u597d", "\u4e16\u754c", "\uff0c", "\u3002", "\u7684"}},
       {"japanese",
        {"\u3053\u3093", "\u306b\u3061", "\u30ab\u30bf", "\u3000", "\u3002\n"}},
       {"russian",
        {"\u0434\u043e\u043c ", "\u0440\u0435\u043a\u0430", ", ", "\u2014 ",
         "\n"}},
       {"hindi",
        {"\u0928\u092e\u0938\u094d\u0924\u0947", " ",
         "\u0926\u0941\u0928\u093f\u092f\u093e", "\u0964"}},
       {"marks",
        {"e\u0301", "a\u0323\u0302", "\u1112\u1161\u11ab", "o", "\u0327\u0301",
         " "}},
       {"digits", {"1", "22", "333", "4444", "."}},
       {"no_space", {"abc", "XYZ", "q", "0", "_", "=="}},
       {"emoji", {"\U0001F600", "\U0001F1E9\U0001F1EA", "\u200d", "x "}},
       {"white", {" ", "\n", "\t", "   ", "a"}},
       {"invalid", {"\xff", "\xe4\xbd", "\x80", "ok ", "\u00e9"}}};
  int cells = 0;
  for (const Case& each : Cases()) {
    for (const auto& [script, known] : scripts) {
      for (const uint32_t seed : {1u, 2u}) {
        SCOPED_TRACE(absl::StrCat(each.name, " ", script, " ", seed));
        const std::string text = Mixed(known, 12000, seed);
        const auto whole =
            each.tokenizer->Encode(text, SpecialTokensInText::kOrdinary);
        ASSERT_TRUE(whole.ok()) << whole.status();
        const Result result = EncodedInPieces(*each.tokenizer, text, Short());
        EXPECT_TRUE(result.tokens == *whole);
        EXPECT_TRUE(result.text == text);
        EXPECT_GT(result.pieces, 5);
        ++cells;
      }
    }
  }
  EXPECT_EQ(cells, 4 * 13 * 2);
}

// One sign again and again, and a line's beginning that belongs to its end.
TEST(TextEncoderTest, TextsOfOneKindOfPlaceAreCutToo) {
  for (const Case& each : Cases()) {
    for (const char* const sign : {"a", "-", "7", "\u4f60", "\n", "x\n "}) {
      SCOPED_TRACE(absl::StrCat(each.name, " ", sign));
      const std::string text = Mixed({sign}, 20000, 1);
      const auto whole = each.tokenizer->Encode(text);
      ASSERT_TRUE(whole.ok()) << whole.status();
      const Result result = EncodedInPieces(*each.tokenizer, text, Short());
      EXPECT_TRUE(result.tokens == *whole);
    }
  }
}

// Where no place is good enough, the text is encoded as often as it doubles.
class Counting : public Tokenizer {
 public:
  absl::StatusOr<Tokens> Encode(absl::string_view text,
                                SpecialTokensInText) const override {
    bytes_ += text.size();
    // Numbered from the end: no part has the tokens of the whole.
    Tokens tokens;
    for (size_t i = text.size(); i > 0; --i) {
      tokens.push_back(static_cast<uint32_t>(i + (text.size() << 8)));
    }
    return tokens;
  }
  std::string Decode(absl::Span<const uint32_t>) const override { return ""; }
  bool beginning_differs() const override { return differs_; }
  int64_t vocabulary_size() const override { return int64_t{1} << 32; }
  std::optional<uint32_t> end_of_text() const override { return {}; }
  const std::vector<SpecialToken>& special_tokens() const override {
    return special_;
  }
  const Tokens& prefix() const override { return none_; }
  const Tokens& suffix() const override { return none_; }

  mutable size_t bytes_ = 0;
  bool differs_ = false;

 private:
  const std::vector<SpecialToken> special_ = {};
  const Tokens none_ = {};
};

TEST(TextEncoderTest, ATextThatCannotBeCutDoesNotTakeItsSquare) {
  Counting tokenizer;
  TextEncoderOptions options = Short();
  options.search_bytes = 1;  // a place or two
  const std::string text(200000, 'x');
  const Result result = EncodedInPieces(tokenizer, text, options);
  EXPECT_EQ(result.pieces, 1);
  EXPECT_TRUE(result.text == text);
  EXPECT_LT(tokenizer.bytes_, 4 * text.size());
}

TEST(TextEncoderTest, ATextWhoseBeginningDiffersIsOnePiece) {
  Counting tokenizer;
  tokenizer.differs_ = true;
  const std::string text(5000, 'x');
  EXPECT_EQ(EncodedInPieces(tokenizer, text, Short()).pieces, 1);
  EXPECT_EQ(tokenizer.bytes_, text.size());
}

TEST(TextEncoderTest, ErrorsAreHandedOn) {
  const auto tokenizer = Open("bytes");
  TextEncoder encoder(*tokenizer, Short(),
                      [](absl::string_view, absl::Span<const uint32_t>) {
                        return absl::AbortedError("full");
                      });
  EXPECT_EQ(encoder.Add(std::string(1000, 'x')).code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(encoder.Finish().code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace tandem::text_encoder_test
