#include "core/store/server.h"

#include <chrono>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/call_within.h"
#include "core/store/shared_store.h"

namespace tandem {
namespace {

// What is behind prefixes, and behind what lets threads share it.
c10::intrusive_ptr<c10d::Store> ClientBehind(
    const c10::intrusive_ptr<c10d::Store>& store) {
  auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(store.get());
  const auto behind =
      prefixed ? prefixed->getUnderlyingNonPrefixStore() : store;
  auto* const shared = dynamic_cast<SharedStore*>(behind.get());
  return shared ? shared->client() : behind;
}

}  // namespace

std::string DescribeSilence(const c10::intrusive_ptr<c10d::Store>& store,
                            const absl::Status& error) {
  const auto served = ClientBehind(store);
  const char* const how = absl::IsUnavailable(error) ? "its connection is lost"
                                                     : "it does not answer";
  auto* const known = dynamic_cast<KnownStore*>(served.get());
  if (known != nullptr && known->server().has_value()) {
    return absl::StrCat(
        "not heard of: ",
        known->server() == StoreServer::kRankZero ? "rank 0 of the job"
                                                  : "the launcher",
        ", which serves the store: ", how, " (", known->address(), ")");
  }
  if (known == nullptr &&
      dynamic_cast<c10d::TCPStore*>(served.get()) == nullptr) {
    return "the store does not answer";
  }
  return absl::StrCat(
      "the store, which rank 0 or the launcher serves, does not answer",
      absl::IsUnavailable(error) ? ": its connection is lost" : "");
}

std::string DescribeRejected(const c10::intrusive_ptr<c10d::Store>& store) {
  constexpr std::chrono::seconds kPatience(5);
  const auto served = ClientBehind(store);
  const absl::StatusOr<std::string> strangers =
      CallWithin<std::string>(kPatience, [served]() -> std::string {
        auto* const known = dynamic_cast<KnownStore*>(served.get());
        return known == nullptr ? "" : known->DescribeRejected();
      });
  if (!strangers.ok() || strangers->empty()) return "";
  return absl::StrCat("; ", *strangers);
}

}  // namespace tandem
