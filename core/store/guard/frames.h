// Frames: messages on a connection, each with its length and a message
// authentication code.
//
// A frame is 4 bytes of length (least first), as many bytes, and the code of:
// how many frames this side has sent before (8 bytes), the 4 bytes of length,
// the message. So whoever can write into the connection cannot add a message,
// change one, leave one out or send one twice.

#ifndef TANDEM_CORE_STORE_GUARD_FRAMES_H_
#define TANDEM_CORE_STORE_GUARD_FRAMES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/digest/hmac_sha256.h"

namespace tandem {

// A longer message is refused before memory is taken for it.
constexpr size_t kMostMessageBytes = size_t{64} << 20;

// One side's. Not thread-safe.
class FrameSealer {
 public:
  explicit FrameSealer(absl::string_view key) : hmac_(key) {}

  // Requires at most kMostMessageBytes.
  std::string Seal(absl::string_view message);

 private:
  const HmacSha256 hmac_;
  uint64_t sent_ = 0;
};

// The other side's. Not thread-safe.
class FrameOpener {
 public:
  explicit FrameOpener(absl::string_view key) : hmac_(key) {}

  // What has come.
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

#endif  // TANDEM_CORE_STORE_GUARD_FRAMES_H_
