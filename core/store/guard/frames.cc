#include "core/store/guard/frames.h"

#include <glog/logging.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem {
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
