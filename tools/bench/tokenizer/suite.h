// The suite "tokenizer": tokenizers beside Python's tokenizers, tiktoken and
// sentencepiece.

#ifndef TANDEM_TOOLS_BENCH_TOKENIZER_SUITE_H_
#define TANDEM_TOOLS_BENCH_TOKENIZER_SUITE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/suite/suite.h"
#include "tools/bench/tokenizer/run.h"

namespace tandem {

// "cases", by tokenizer and library: milliseconds and MB of text a second
// (medians), and peer / ours with the least and the greatest of the rounds.
// "failures", of those that were not timed.
std::vector<Table> TokenizerTables(const std::vector<TokenizerResult>& results);

// Internal, besides its figures, where tokens are not the same.
absl::StatusOr<SuiteReport> RunTokenizerSuite(const BenchFlags& flags,
                                              const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_TOKENIZER_SUITE_H_
