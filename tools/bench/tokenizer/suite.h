// The suite "tokenizer": tokenizers beside Python's tokenizers, tiktoken and
// sentencepiece.

#ifndef TANDEM_TOOLS_BENCH_TOKENIZER_SUITE_H_
#define TANDEM_TOOLS_BENCH_TOKENIZER_SUITE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/suite/suite.h"

namespace tandem {

struct TokenizerBench {
  std::vector<std::string> documents;  // UTF-8
  // Starts the peer (tools/bench/peers/text_tokens.py); what Side appends and
  // --documents come behind it.
  std::vector<std::string> peer;
  std::string folder;  // an existing one, for files
  // Vocabulary of the tokenizers that are made of the documents.
  int64_t vocabulary = 8000;
  // A tokenizer.json or a sentencepiece model to be timed instead of those.
  std::string tokenizer;
  int rounds = 7;
};

// Times of all documents, by round, in milliseconds.
struct TokenizerResult {
  std::string name;  // "gpt2"
  std::string peer;  // "tokenizers 0.23.3"
  // Why nothing was timed: the tokens are not the same. Empty: it was.
  std::string failure;
  int64_t bytes = 0;
  int64_t tokens = 0;
  std::vector<double> ours_ms;
  std::vector<double> peer_ms;
};

// Each tokenizer beside each library that has it. A round takes a tenth of a
// second and more on each side; who begins changes. Both sides open a tokenizer
// anew, which is not timed, before each pass over the documents: they are new
// to it. Tokens that are not the same are not timed. The errors of tokenizers
// and of Side. Binds the calling thread to the peer's core.
absl::StatusOr<std::vector<TokenizerResult>> CompareTokenizers(
    const TokenizerBench& bench);

// "cases", by tokenizer and library: milliseconds and MB of text a second
// (medians), and peer / ours with the least and the greatest of the rounds.
// "failures", of those that were not timed.
std::vector<Table> TokenizerTables(const std::vector<TokenizerResult>& results);

// Internal, besides its figures, where tokens are not the same.
absl::StatusOr<SuiteReport> RunTokenizerSuite(const BenchFlags& flags,
                                              const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_TOKENIZER_SUITE_H_
