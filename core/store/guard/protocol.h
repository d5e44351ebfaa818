// Protocol of guarded connections: a handshake, challenge and response, by
// which two ends of a connection show each other that they know a secret,
// without telling it; and then frames.
//
//   server                                    client
//   greeting: kMagic, nonce s  ------------>
//            <------------------------------  nonce c, HMAC(secret, "client",
//                                             s, c)
//   HMAC(secret, "server", s, c)  --------->
//
// or kRefusal in place of the last. Each end's nonce is new, so what was heard
// of one connection opens no other; the words before the nonces keep an answer
// of one end from being used as the other's. What follows is under keys of this
// connection, in frames, so that it cannot be taken over either. Pure. Nothing
// is encrypted.

#ifndef TANDEM_CORE_STORE_GUARD_PROTOCOL_H_
#define TANDEM_CORE_STORE_GUARD_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/digest/hmac_sha256.h"

namespace tandem {

constexpr absl::string_view kMagic = "tandem-secret-1\n";
constexpr size_t kNonceBytes = 32;
constexpr size_t kGreetingBytes = kMagic.size() + kNonceBytes;
constexpr size_t kProofBytes = kNonceBytes + kCodeBytes;
// The server's last word to who does not know the secret.
constexpr absl::string_view kRefusal = "tandem: wrong job secret, bye...";
static_assert(kRefusal.size() == kCodeBytes);

// Nonces of both sides: kNonceBytes each.
struct Nonces {
  std::string server;
  std::string client;
};

std::string Greeting(absl::string_view server_nonce);
// What the client sends, kProofBytes, and whether it shows the secret.
std::string ClientProof(absl::string_view secret, const Nonces& nonces);
bool IsClientProof(absl::string_view secret, absl::string_view server_nonce,
                   absl::string_view proof);
// What the server answers, kCodeBytes.
std::string ServerProof(absl::string_view secret, const Nonces& nonces);

// The keys for what each side sends.
struct SessionKeys {
  std::string client;
  std::string server;
};

SessionKeys DeriveKeys(absl::string_view secret, const Nonces& nonces);

// Frames: messages on a connection, each with its length and a message
// authentication code.
//
// A frame is 4 bytes of length (least first), as many bytes, and the code of:
// how many frames this side has sent before (8 bytes), the 4 bytes of length,
// the message. So whoever can write into the connection cannot add a message,
// change one, leave one out or send one twice.

// A longer message is refused before memory is taken for it.
constexpr size_t kMostMessageBytes = size_t{64} << 20;

// The sender's side. Not thread-safe.
class FrameSealer {
 public:
  explicit FrameSealer(absl::string_view key) : hmac_(key) {}

  // Requires at most kMostMessageBytes.
  std::string Seal(absl::string_view message);

 private:
  const HmacSha256 hmac_;
  uint64_t sent_ = 0;
};

// The receiver's side. Not thread-safe.
class FrameOpener {
 public:
  explicit FrameOpener(absl::string_view key) : hmac_(key) {}

  // Adds what has come.
  void Append(absl::string_view bytes) { bytes_.append(bytes); }
  // The next message, if it has come whole. DataLoss for what is no frame of
  // the other side: nothing that follows can be trusted.
  absl::StatusOr<std::optional<std::string>> Next();

 private:
  const HmacSha256 hmac_;
  uint64_t received_ = 0;
  std::string bytes_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_GUARD_PROTOCOL_H_
