// Handshake: challenge and response, by which two ends of a connection show
// each other that they know a secret, without telling it.
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
// connection (core/store/guard/frames.h), so that it cannot be taken over
// either. Pure. Nothing is encrypted.

#ifndef TANDEM_CORE_STORE_GUARD_HANDSHAKE_H_
#define TANDEM_CORE_STORE_GUARD_HANDSHAKE_H_

#include <cstddef>
#include <string>

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

// For what each side sends.
struct SessionKeys {
  std::string client;
  std::string server;
};

SessionKeys DeriveKeys(absl::string_view secret, const Nonces& nonces);

}  // namespace tandem

#endif  // TANDEM_CORE_STORE_GUARD_HANDSHAKE_H_
