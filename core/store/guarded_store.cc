#include "core/store/guarded_store.h"

#include <c10/util/Exception.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/store/shared_store.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::string Text(const std::vector<uint8_t>& bytes) {
  return std::string(bytes.begin(), bytes.end());
}

std::vector<uint8_t> Bytes(const std::string& text) {
  return std::vector<uint8_t>(text.begin(), text.end());
}

std::vector<std::string> Request(const std::string& operation,
                                 const std::vector<std::string>& keys) {
  std::vector<std::string> request = {operation};
  request.insert(request.end(), keys.begin(), keys.end());
  return request;
}

int64_t Number(const std::vector<std::string>& answer) {
  int64_t number = 0;
  TORCH_CHECK_WITH(DistStoreError,
                   answer.size() == 1 && absl::SimpleAtoi(answer[0], &number),
                   "the store's server answers something else than a number");
  return number;
}

void CheckCount(size_t found, size_t expected) {
  TORCH_CHECK_WITH(DistStoreError, found == expected,
                   "the store's server answers with ", found,
                   " values instead of ", expected);
}

}  // namespace

GuardedStore::GuardedStore(std::shared_ptr<GuardedConnection> connection,
                           std::string address,
                           std::optional<StoreServer> server,
                           milliseconds timeout,
                           std::shared_ptr<GuardServer> served)
    : c10d::Store(timeout),
      connection_(std::move(connection)),
      address_(std::move(address)),
      server_(server),
      served_(std::move(served)) {}

std::vector<std::string> GuardedStore::Call(
    const std::vector<std::string>& request) {
  const auto deadline = timeout_ == kNoTimeout ? Clock::time_point::max()
                                               : Clock::now() + timeout_;
  absl::StatusOr<std::vector<std::string>> answer =
      connection_->Call(request, deadline);
  TORCH_CHECK_WITH(DistNetworkError, !absl::IsUnavailable(answer.status()),
                   answer.status().message());
  TORCH_CHECK_WITH(DistStoreError, !absl::IsDeadlineExceeded(answer.status()),
                   "wait timeout after ", timeout_.count(),
                   "ms: ", answer.status().message());
  TORCH_CHECK_WITH(DistStoreError, answer.ok(), answer.status().message());
  return *std::move(answer);
}

c10::intrusive_ptr<c10d::Store> GuardedStore::clone() {
  return c10::make_intrusive<GuardedStore>(connection_, address_, server_,
                                           timeout_, served_);
}

void GuardedStore::set(const std::string& key,
                       const std::vector<uint8_t>& value) {
  Call({"set", key, Text(value)});
}

std::vector<uint8_t> GuardedStore::compareSet(
    const std::string& key, const std::vector<uint8_t>& expected,
    const std::vector<uint8_t>& desired) {
  const auto answer = Call({"compare", key, Text(expected), Text(desired)});
  CheckCount(answer.size(), 1);
  return Bytes(answer[0]);
}

std::vector<uint8_t> GuardedStore::get(const std::string& key) {
  return multiGet({key})[0];
}

int64_t GuardedStore::add(const std::string& key, int64_t value) {
  return Number(Call({"add", key, absl::StrCat(value)}));
}

bool GuardedStore::deleteKey(const std::string& key) {
  return Number(Call({"delete", key})) != 0;
}

bool GuardedStore::check(const std::vector<std::string>& keys) {
  return Number(Call(Request("check", keys))) != 0;
}

int64_t GuardedStore::getNumKeys() { return Number(Call({"count"})); }

void GuardedStore::wait(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
}

void GuardedStore::wait(const std::vector<std::string>& keys,
                        const milliseconds& timeout) {
  WaitByAsking(*this, keys, timeout);
}

void GuardedStore::append(const std::string& key,
                          const std::vector<uint8_t>& value) {
  Call({"append", key, Text(value)});
}

std::vector<std::vector<uint8_t>> GuardedStore::multiGet(
    const std::vector<std::string>& keys) {
  wait(keys, timeout_);
  const std::vector<std::string> answer = Call(Request("get", keys));
  CheckCount(answer.size(), keys.size());
  std::vector<std::vector<uint8_t>> values;
  for (const std::string& value : answer) values.push_back(Bytes(value));
  return values;
}

void GuardedStore::multiSet(const std::vector<std::string>& keys,
                            const std::vector<std::vector<uint8_t>>& values) {
  CheckCount(values.size(), keys.size());
  if (keys.empty()) return;
  std::vector<std::string> request = {"set"};
  for (size_t i = 0; i < keys.size(); ++i) {
    request.push_back(keys[i]);
    request.push_back(Text(values[i]));
  }
  Call(request);
}

std::string GuardedStore::DescribeRejected() {
  if (!check({kStrangersKey})) return "";
  return Text(get(kStrangersKey));
}

}  // namespace tandem
