// Parity cases: texts, and the tokens that Python's tokenizers make of them, as
// the scripts make_parity.py write them.

#ifndef TANDEM_TESTS_DATASETS_TOKENIZERS_PARITY_CASES_H_
#define TANDEM_TESTS_DATASETS_TOKENIZERS_PARITY_CASES_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "datasets/tokenizers/tokenizer.h"

namespace tandem {

using Tokens = std::vector<uint32_t>;

// Fails the test that calls, as the others do, where there is nothing to give.
nlohmann::json ReadParity(const std::string& path);
std::unique_ptr<Tokenizer> OpenOrFail(const std::string& name_or_path);
Tokens EncodeOrFail(
    const Tokenizer& tokenizer, const std::string& text,
    SpecialTokensInText special = SpecialTokensInText::kRecognized);

// Bytes of a case's "bytes", which are in Base64.
std::string DecodedBytes(const nlohmann::json& base64);
// The text of a long text's case: its "piece" as many "times" as it says.
std::string LongText(const nlohmann::json& each);
// SHA-256 of the tokens as little-endian numbers of 32 bits.
std::string TokenDigest(const Tokens& tokens);

}  // namespace tandem

#endif  // TANDEM_TESTS_DATASETS_TOKENIZERS_PARITY_CASES_H_
