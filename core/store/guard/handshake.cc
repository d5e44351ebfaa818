#include "core/store/guard/handshake.h"

#include "absl/strings/str_cat.h"
#include "core/digest/hmac_sha256.h"

namespace tandem {
namespace {

// `purpose`s have one length, as nonces do.
std::string Code(absl::string_view secret, absl::string_view purpose,
                 absl::string_view server_nonce,
                 absl::string_view client_nonce) {
  return HmacSha256(secret).Of({purpose, server_nonce, client_nonce});
}

}  // namespace

std::string Greeting(absl::string_view server_nonce) {
  return absl::StrCat(kMagic, server_nonce);
}

std::string ClientProof(absl::string_view secret, const Nonces& nonces) {
  return absl::StrCat(nonces.client,
                      Code(secret, "client", nonces.server, nonces.client));
}

bool IsClientProof(absl::string_view secret, absl::string_view server_nonce,
                   absl::string_view proof) {
  if (proof.size() != kProofBytes) return false;
  const absl::string_view client_nonce = proof.substr(0, kNonceBytes);
  return SameCode(proof.substr(kNonceBytes),
                  Code(secret, "client", server_nonce, client_nonce));
}

std::string ServerProof(absl::string_view secret, const Nonces& nonces) {
  return Code(secret, "server", nonces.server, nonces.client);
}

SessionKeys DeriveKeys(absl::string_view secret, const Nonces& nonces) {
  return {Code(secret, "key c ", nonces.server, nonces.client),
          Code(secret, "key s ", nonces.server, nonces.client)};
}

}  // namespace tandem
