#include "core/store/shared_store.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "core/base/short_list.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kFirstPause(1);

// Each question sends all keys anew.
milliseconds LongestPause(size_t keys) {
  return std::max(milliseconds(100), milliseconds(keys));
}

}  // namespace

void WaitByAsking(c10d::Store& store, const std::vector<std::string>& keys,
                  milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  milliseconds pause = kFirstPause;
  while (!store.check(keys)) {
    const auto left =
        timeout == c10d::Store::kNoTimeout ? pause : deadline - Clock::now();
    TORCH_CHECK_WITH(DistStoreError, left > Clock::duration::zero(),
                     "wait timeout after ", timeout.count(),
                     "ms, keys: ", ShortList(keys));
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, left));
    pause = std::min(2 * pause, LongestPause(keys.size()));
  }
}

SharedStore::SharedStore(c10::intrusive_ptr<c10d::Store> client)
    : client_(std::move(client)) {}

c10::intrusive_ptr<c10d::Store> SharedStore::clone() {
  return c10::make_intrusive<SharedStore>(client_->clone());
}

void SharedStore::set(const std::string& key,
                      const std::vector<uint8_t>& value) {
  client_->set(key, value);
}

std::vector<uint8_t> SharedStore::compareSet(
    const std::string& key, const std::vector<uint8_t>& expected,
    const std::vector<uint8_t>& desired) {
  return client_->compareSet(key, expected, desired);
}

std::vector<uint8_t> SharedStore::get(const std::string& key) {
  wait({key}, getTimeout());
  return client_->get(key);
}

int64_t SharedStore::add(const std::string& key, int64_t value) {
  return client_->add(key, value);
}

bool SharedStore::deleteKey(const std::string& key) {
  return client_->deleteKey(key);
}

bool SharedStore::check(const std::vector<std::string>& keys) {
  return client_->check(keys);
}

int64_t SharedStore::getNumKeys() { return client_->getNumKeys(); }

void SharedStore::wait(const std::vector<std::string>& keys) {
  wait(keys, getTimeout());
}

void SharedStore::wait(const std::vector<std::string>& keys,
                       const milliseconds& timeout) {
  WaitByAsking(*client_, keys, timeout);
}

const milliseconds& SharedStore::getTimeout() const noexcept {
  return client_->getTimeout();
}

void SharedStore::setTimeout(const milliseconds& timeout) {
  client_->setTimeout(timeout);
}

void SharedStore::append(const std::string& key,
                         const std::vector<uint8_t>& value) {
  client_->append(key, value);
}

std::vector<std::vector<uint8_t>> SharedStore::multiGet(
    const std::vector<std::string>& keys) {
  wait(keys, getTimeout());
  return client_->multiGet(keys);
}

void SharedStore::multiSet(const std::vector<std::string>& keys,
                           const std::vector<std::vector<uint8_t>>& values) {
  client_->multiSet(keys, values);
}

bool SharedStore::hasExtendedApi() const { return client_->hasExtendedApi(); }

}  // namespace tandem
