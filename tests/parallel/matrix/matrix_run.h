// The run of a whole matrix of settings, and the table of it that it prints for
// docs.

#ifndef TANDEM_TESTS_PARALLEL_MATRIX_MATRIX_RUN_H_
#define TANDEM_TESTS_PARALLEL_MATRIX_MATRIX_RUN_H_

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

struct MatrixSetting {
  std::string name;
  std::vector<std::string> values;
};

using MatrixSettings = std::vector<MatrixSetting>;

// How many values each setting has.
std::vector<int> SizesOf(const MatrixSettings& settings);

// InvalidArgument, naming the flag, the value and those that there are, for one
// of `asked` that is not among `known`.
absl::Status CheckAsked(absl::string_view flag,
                        const std::vector<std::string>& asked,
                        const std::vector<std::string>& known);
// Is it among those asked for, or nothing asked for?
bool IsAsked(const std::vector<std::string>& asked, const std::string& value);

// Every `count`-th cell, from number `index` (from 0).
struct MatrixShard {
  size_t index = 0;
  size_t count = 1;
};

// "I/N" with 1 <= I <= N.
absl::StatusOr<MatrixShard> ParseShard(absl::string_view text);

// What a cell came to.
struct CellOutcome {
  double difference = 0;  // 0: the same bits
  std::string complaint;  // empty: as it should be
};

struct MatrixCommand {
  size_t cells = 0;
  std::function<std::string(size_t cell)> name;
  // Model and schedule: a row of the table.
  std::function<std::pair<std::string, std::string>(size_t cell)> row;
  std::function<CellOutcome(size_t cell)> run;
};

// Runs the shard's cells; progress and complaints go to stderr, the table to
// stdout. Returns how many cells failed.
int RunMatrix(const MatrixCommand& command, const MatrixShard& shard = {});

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_MATRIX_MATRIX_RUN_H_
