#include "core/store/guard/protocol.h"

#include <glog/logging.h>

#include "absl/status/status.h"
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

namespace {

constexpr size_t kLengthBytes = 4;

// `count` bytes, least first.
std::string Encode(uint64_t number, size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<char>(number >> (8 * i)));
  }
  return bytes;
}

size_t DecodeLength(absl::string_view bytes) {
  size_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= size_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return length;
}

}  // namespace

std::string FrameSealer::Seal(absl::string_view message) {
  CHECK_LE(message.size(), kMostMessageBytes);
  const std::string length = Encode(message.size(), kLengthBytes);
  const std::string code = hmac_.Of({Encode(sent_++, 8), length, message});
  return absl::StrCat(length, message, code);
}

absl::StatusOr<std::optional<std::string>> FrameOpener::Next() {
  if (bytes_.size() < kLengthBytes) return std::nullopt;
  const size_t size = DecodeLength(bytes_);
  if (size > kMostMessageBytes) {
    return absl::DataLossError(absl::StrCat(
        "a message of ", size, " bytes, at most ", kMostMessageBytes));
  }
  if (bytes_.size() < kLengthBytes + size + kCodeBytes) return std::nullopt;
  const absl::string_view frame = bytes_;
  const absl::string_view message = frame.substr(kLengthBytes, size);
  const std::string code = hmac_.Of(
      {Encode(received_++, 8), frame.substr(0, kLengthBytes), message});
  if (!SameCode(code, frame.substr(kLengthBytes + size, kCodeBytes))) {
    return absl::DataLossError("a message that the other side did not send");
  }
  std::string result(message);
  bytes_.erase(0, kLengthBytes + size + kCodeBytes);
  return result;
}

}  // namespace tandem
