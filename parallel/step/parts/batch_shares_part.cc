// Shares of a global batch: the driver asks BatchShares for them; here are
// their options.

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/step/parts/rows.h"
#include "parallel/step/step_part_row.h"

namespace tandem {
namespace {

void DescribeBatchShares(const MeshStrategyOptions& options,
                         NamedValues& values) {
  values["microbatch_size"] = absl::StrCat(options.microbatch_size);
  values["uneven_batches"] = SwitchText(options.uneven_batches);
  values["uneven_division"] =
      absl::StrCat(static_cast<int>(options.uneven_division));
}

absl::Status CheckBatchShares(const MeshStrategyOptions& options) {
  if (options.uneven_batches && options.reproducible &&
      options.microbatch_size == 0) {
    return absl::InvalidArgumentError(
        "uneven_batches with reproducible needs a microbatch_size: the same "
        "microbatches in every layout, however many there are");
  }
  return absl::OkStatus();
}

}  // namespace

constexpr StepPartRow kBatchSharesRow = {"batch_shares", nullptr,
                                         DescribeBatchShares, CheckBatchShares};

}  // namespace tandem
