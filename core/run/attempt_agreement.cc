#include "core/run/attempt_agreement.h"

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/call_within.h"
#include "core/base/status_macros.h"
#include "core/store/store.h"

namespace tandem {
namespace {

constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(5);
// Beside the attempts' own keys, which have a prefix each.
constexpr char kKey[] = "tandem/latest_attempt";

// The attempt that the store has after it was told of `next`.
std::string Raise(c10d::Store& store, int next) {
  const std::string before = next == 1 ? "" : absl::StrCat(next - 1);
  const std::string after = absl::StrCat(next);
  return store.compareSet(kKey, before, after);
}

}  // namespace

absl::StatusOr<int> AgreeOnAttempt(const Launch& node, int failed) {
  const Rendezvous& where = node.rendezvous;
  TANDEM_ASSIGN_OR_RETURN(StorePtr store,
                          ConnectTcpStore(where.host, where.port, kPatience));
  TANDEM_ASSIGN_OR_RETURN(
      const std::string latest,
      CallWithin<std::string>(kPatience, [store, next = failed + 1] {
        return Raise(*store, next);
      }));
  int attempt = 0;
  if (absl::SimpleAtoi(latest, &attempt) && attempt > failed) return attempt;
  return absl::InternalError(
      absl::StrCat("the store at ", where.host, ":", where.port, " says '",
                   latest, "' for the attempt that follows ", failed));
}

}  // namespace tandem
