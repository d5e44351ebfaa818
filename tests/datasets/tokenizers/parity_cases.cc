#include "tests/datasets/tokenizers/parity_cases.h"

#include <fstream>
#include <utility>

#include "absl/strings/escaping.h"
#include "core/digest/sha256.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "gtest/gtest.h"

namespace tandem {

using Json = nlohmann::json;

Json ReadParity(const std::string& path) {
  Json parity = Json::parse(std::ifstream(path), /*cb=*/nullptr,
                            /*allow_exceptions=*/false);
  EXPECT_TRUE(parity.is_object()) << path;
  return parity;
}

std::unique_ptr<Tokenizer> OpenOrFail(const std::string& name_or_path) {
  auto tokenizer = OpenTokenizer(name_or_path);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

Tokens EncodeOrFail(const Tokenizer& tokenizer, const std::string& text,
                    SpecialTokensInText special) {
  const auto tokens = tokenizer.Encode(text, special);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  return tokens.value_or(Tokens());
}

std::string DecodedBytes(const Json& base64) {
  std::string bytes;
  EXPECT_TRUE(absl::Base64Unescape(base64.get<std::string>(), &bytes));
  return bytes;
}

std::string LongText(const Json& each) {
  const auto piece = each["piece"].get<std::string>();
  std::string text;
  for (int i = each["times"].get<int>(); i > 0; --i) text += piece;
  return text;
}

std::string TokenDigest(const Tokens& tokens) {
  Sha256 hash;
  hash.Update(tokens.data(), tokens.size() * sizeof(uint32_t));
  return hash.HexDigest();
}

}  // namespace tandem
