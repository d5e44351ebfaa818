#include "core/store/guard/session.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/store/guard/protocol.h"

namespace tandem {

Session::Session(std::string secret, std::string nonce)
    : secret_(std::move(secret)),
      nonce_(std::move(nonce)),
      output_(Greeting(nonce_)) {}

bool Session::Take(absl::string_view bytes, KeyValues* table) {
  has_spoken_ = has_spoken_ || !bytes.empty();
  if (!is_member() && !TakeProof(&bytes)) return false;
  if (!is_member()) return true;
  opener_->Append(bytes);
  while (true) {
    has_more_ = output_.size() >= kMostMessageBytes;
    if (has_more_) return true;
    const absl::StatusOr<std::optional<std::string>> request = opener_->Next();
    if (!request.ok()) return false;
    if (!request->has_value()) return true;
    const std::string answer = AnswerRequest(**request, table);
    if (answer.size() > kMostMessageBytes) return false;
    output_.append(sealer_->Seal(answer));
  }
}

// Takes what belongs to the proof off `bytes`; false for a wrong one.
bool Session::TakeProof(absl::string_view* bytes) {
  const size_t taken = std::min(bytes->size(), kProofBytes - proof_.size());
  proof_.append(bytes->data(), taken);
  bytes->remove_prefix(taken);
  if (proof_.size() < kProofBytes) return true;
  if (!IsClientProof(secret_, nonce_, proof_)) {
    output_.append(kRefusal.data(), kRefusal.size());
    return false;
  }
  Join();
  return true;
}

void Session::Join() {
  const Nonces nonces = {nonce_, proof_.substr(0, kNonceBytes)};
  const SessionKeys keys = DeriveKeys(secret_, nonces);
  output_.append(ServerProof(secret_, nonces));
  opener_.emplace(keys.client);
  sealer_.emplace(keys.server);
}

void ServerConnections::Add(ServerConnection connection,
                            Clock::time_point now) {
  const int fd = connection.fd.get();
  unknown_.push_back({fd, now + kHandshakeTimeout});
  connections_.emplace(fd, std::move(connection));
  if (unknown_.size() > kMostUnknown) RemoveOldestUnknown();
}

ServerConnection* ServerConnections::Find(int fd) {
  const auto at = connections_.find(fd);
  return at == connections_.end() ? nullptr : &at->second;
}

void ServerConnections::NoteMember(int fd) {
  unknown_.remove_if([fd](const Waiting& each) { return each.fd == fd; });
}

void ServerConnections::Remove(int fd) {
  const auto at = connections_.find(fd);
  if (at == connections_.end()) return;
  const Session& session = at->second.session;
  if (!session.is_member() && session.has_spoken()) NoteStranger(at->second);
  NoteMember(fd);
  connections_.erase(at);
}

void ServerConnections::RemoveSlow(Clock::time_point now) {
  while (!unknown_.empty() && unknown_.front().until <= now) {
    RemoveOldestUnknown();
  }
}

bool ServerConnections::RemoveOldestUnknown() {
  if (unknown_.empty()) return false;
  const auto at = connections_.find(unknown_.front().fd);
  NoteStranger(at->second);
  connections_.erase(at);
  unknown_.pop_front();
  return true;
}

ServerConnections::Clock::time_point ServerConnections::NextEnd() const {
  return unknown_.empty() ? Clock::time_point::max() : unknown_.front().until;
}

void ServerConnections::NoteStranger(const ServerConnection& connection) {
  ++strangers_;
  last_stranger_ = connection.address;
}

std::string ServerConnections::DescribeRejected() const {
  return absl::StrCat(
      strangers_, strangers_ == 1 ? " connection" : " connections",
      " that did not show the job's secret ", strangers_ == 1 ? "was" : "were",
      " turned away from the store, the last from ", last_stranger_);
}

}  // namespace tandem
