// Server's side of a connection, from the first byte to the last: handshake,
// then requests. Bytes in, bytes out; no sockets.

#ifndef TANDEM_CORE_STORE_GUARD_SESSION_H_
#define TANDEM_CORE_STORE_GUARD_SESSION_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "core/store/guard/frames.h"
#include "core/store/guard/key_values.h"

namespace tandem {

// Not thread-safe.
class Session {
 public:
  // `nonce`: a new one, kNonceBytes. A greeting is to be sent at once.
  Session(std::string secret, std::string nonce);

  // Whether it has shown that it knows the secret.
  bool is_member() const { return opener_.has_value(); }
  // Whether anything has come.
  bool has_spoken() const { return has_spoken_; }

  // What has come. False when it goes no further: the secret was not shown, or
  // a message is not the member's; what is to be sent is then the last.
  // Requests are done on `table`. Of one who is no member, no more is kept than
  // a proof.
  bool Take(absl::string_view bytes, KeyValues* table);

  // Whether requests may stand in line whose answers would be too much at once
  // to keep: a Take of nothing goes on with them, when the output is sent.
  bool has_more() const { return has_more_; }

  // What is to be sent, for the caller to take from its front.
  std::string& output() { return output_; }

 private:
  bool TakeProof(absl::string_view* bytes);
  void Join();

  const std::string secret_;
  const std::string nonce_;
  std::string proof_;
  std::string output_;
  bool has_spoken_ = false;
  bool has_more_ = false;
  std::optional<FrameOpener> opener_;
  std::optional<FrameSealer> sealer_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_GUARD_SESSION_H_
