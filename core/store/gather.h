// All-gather over a store: every rank's text, before ranks can talk.

#ifndef TANDEM_CORE_STORE_GATHER_H_
#define TANDEM_CORE_STORE_GATHER_H_

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/store/store.h"

namespace tandem {

// Texts by rank; none for a rank that has not come.
using GatheredTexts = std::vector<std::optional<std::string>>;

// Leaves `mine` under `key`, waits at most `timeout` until all `size` ranks
// have done so, and returns theirs: all of them, or those that have come by
// then. An error is the store's. A key serves once. `is_over`, asked twice a
// second while it waits, may end the wait before its time.
//
// Each rank makes four operations on the store, the last one two more: it
// collects what the others then read in one piece, in which a text of many
// ranks (a host's) stands once.
absl::StatusOr<GatheredTexts> GatherAtStore(
    c10d::Store& store, const std::string& key, int rank, int size,
    const std::string& mine, std::chrono::milliseconds timeout,
    const std::function<bool()>& is_over = nullptr);

// Removes what a gather under `key` has left, when every rank has its texts.
void ForgetGather(c10d::Store& store, const std::string& key);

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_GATHER_H_
