// What tools/bench_tokenize shows.

#ifndef TANDEM_TOOLS_BENCH_TOKENIZER_REPORT_H_
#define TANDEM_TOOLS_BENCH_TOKENIZER_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/tokenizer/run.h"

namespace tandem {

// A line for each tokenizer and library: MB of text a second (medians), their
// ratio, above 1 where tandem is faster, and its range over the rounds. Below
// them a line for each that failed.
std::string TokenizerTable(const std::vector<TokenizerResult>& results);

// {"cases": [{"name", "peer", "bytes", "tokens", "ours_ms", "peer_ms", "ratio",
// "ratio_min", "ratio_max"}], "failures": [{"name", "peer", "reason"}]}:
// medians, and peer / ours.
nlohmann::json TokenizerJson(const std::vector<TokenizerResult>& results);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_TOKENIZER_REPORT_H_
