#include "tests/parallel/matrix/matrix_run.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem {
namespace {

struct Row {
  int cells = 0;
  int same_bits = 0;
  int failed = 0;
  double worst = 0;

  void Add(const CellOutcome& outcome) {
    ++cells;
    if (!outcome.complaint.empty()) {
      ++failed;
      return;
    }
    if (outcome.difference == 0) ++same_bits;
    worst = std::max(worst, outcome.difference);
  }
};

using Rows = std::map<std::pair<std::string, std::string>, Row>;

void Print(const Rows& rows) {
  std::printf(
      "| model | schedule | cells | same bits | worst difference | failed |\n"
      "|---|---|---|---|---|---|\n");
  for (const auto& [name, row] : rows) {
    std::printf("| %s | %s | %d | %d | %.1e | %d |\n", name.first.c_str(),
                name.second.c_str(), row.cells, row.same_bits, row.worst,
                row.failed);
  }
}

}  // namespace

std::vector<int> SizesOf(const MatrixSettings& settings) {
  std::vector<int> sizes;
  for (const MatrixSetting& each : settings) {
    sizes.push_back(static_cast<int>(each.values.size()));
  }
  return sizes;
}

absl::Status CheckAsked(absl::string_view flag,
                        const std::vector<std::string>& asked,
                        const std::vector<std::string>& known) {
  for (const std::string& each : asked) {
    if (absl::c_linear_search(known, each)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, ": there is no '", each, "': choose among ",
                     absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

bool IsAsked(const std::vector<std::string>& asked, const std::string& value) {
  return asked.empty() || absl::c_linear_search(asked, value);
}

absl::StatusOr<MatrixShard> ParseShard(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '/');
  int index = 0;
  int count = 0;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &index) &&
      absl::SimpleAtoi(parts[1], &count) && index >= 1 && index <= count) {
    return MatrixShard{static_cast<size_t>(index - 1),
                       static_cast<size_t>(count)};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--shard='", text, "': expected I/N with 1 <= I <= N, as in 2/4"));
}

int RunMatrix(const MatrixCommand& command, const MatrixShard& shard) {
  Rows rows;
  int run = 0;
  int failed = 0;
  const absl::Time start = absl::Now();
  for (size_t i = shard.index; i < command.cells; i += shard.count) {
    const CellOutcome outcome = command.run(i);
    rows[command.row(i)].Add(outcome);
    ++run;
    if (!outcome.complaint.empty()) {
      ++failed;
      std::fprintf(stderr, "\n%s: %s\n", command.name(i).c_str(),
                   outcome.complaint.c_str());
    }
    if (run % 20 == 1) {
      std::fprintf(stderr, "\r%d run, %zu of %zu, %d failed", run, i + 1,
                   command.cells, failed);
    }
  }
  std::fprintf(
      stderr, "\n%s\n",
      absl::FormatDuration(absl::Trunc(absl::Now() - start, absl::Seconds(1)))
          .c_str());
  Print(rows);
  std::printf("\n%d cells, %d failed\n", run, failed);
  return failed;
}

}  // namespace tandem
