#include "core/launch/dist_url.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tandem {
namespace {

absl::Status Invalid(absl::string_view url, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--dist_url=", url, ": ", why,
                   "; expected env://, tcp://HOST:PORT or file:///PATH"));
}

absl::StatusOr<DistUrl> ParseTcp(absl::string_view url,
                                 absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) {
    return Invalid(url, "no host and port");
  }
  DistUrl result;
  result.kind = DistUrl::Kind::kTcp;
  absl::string_view host = address.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[") != absl::ConsumeSuffix(&host, "]") ||
      host.empty()) {
    return Invalid(url, "the host is not one");
  }
  result.host = std::string(host);
  if (!absl::SimpleAtoi(address.substr(colon + 1), &result.port) ||
      result.port < 0 || result.port > 65535) {
    return Invalid(url, "the port is not a number from 0 to 65535");
  }
  return result;
}

}  // namespace

absl::StatusOr<DistUrl> ParseDistUrl(absl::string_view url) {
  absl::string_view rest = url;
  if (url.find('?') != absl::string_view::npos) {
    return Invalid(url, "no query is taken: give --rank and --world_size");
  }
  if (absl::ConsumePrefix(&rest, "env://")) {
    if (!rest.empty()) return Invalid(url, "nothing may follow env://");
    return DistUrl{};
  }
  if (absl::ConsumePrefix(&rest, "tcp://")) return ParseTcp(url, rest);
  if (absl::ConsumePrefix(&rest, "file://")) {
    if (rest.size() < 2 || rest[0] != '/') {
      return Invalid(url, "the path must be absolute, with three slashes");
    }
    DistUrl result;
    result.kind = DistUrl::Kind::kFile;
    result.path = std::string(rest);
    return result;
  }
  return Invalid(url, "unknown scheme");
}

absl::string_view WithoutBrackets(absl::string_view host) {
  absl::string_view inner = host;
  return absl::ConsumePrefix(&inner, "[") && absl::ConsumeSuffix(&inner, "]")
             ? inner
             : host;
}

}  // namespace tandem
