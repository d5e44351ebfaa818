#include "core/store/guard/session.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/statusor.h"
#include "core/store/guard/handshake.h"

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
  const SessionKeys keys = KeysOf(secret_, nonces);
  output_.append(ServerProof(secret_, nonces));
  opener_.emplace(keys.client);
  sealer_.emplace(keys.server);
}

}  // namespace tandem
