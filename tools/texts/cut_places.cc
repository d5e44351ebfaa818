#include "tools/texts/cut_places.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "absl/strings/ascii.h"

namespace tandem {
namespace {

constexpr size_t kPlaceKinds = 5;

bool IsLineEnd(char byte) { return byte == '\n' || byte == '\r'; }

bool IsSpace(char byte) {
  return absl::ascii_isspace(static_cast<unsigned char>(byte));
}

bool IsWithinCharacter(char byte) {
  return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

// Kind of the place between the two: how many kinds are better. None: there is
// no place.
std::optional<size_t> PlaceKind(char before, char after) {
  if (IsWithinCharacter(after) || (before == '\r' && after == '\n')) {
    return std::nullopt;
  }
  if (IsLineEnd(before)) return IsSpace(after) ? 1 : 0;
  if (IsLineEnd(after)) return 2;
  return IsSpace(after) ? 3 : 4;
}

}  // namespace

std::vector<size_t> CutPlaces(absl::string_view text, size_t least, size_t most,
                              size_t count) {
  std::array<std::vector<size_t>, kPlaceKinds> kinds;
  for (size_t at = std::max<size_t>(least, 1);
       at <= most && at < text.size() && kinds.front().size() < count; ++at) {
    const std::optional<size_t> kind = PlaceKind(text[at - 1], text[at]);
    if (kind && kinds[*kind].size() < count) kinds[*kind].push_back(at);
  }
  std::vector<size_t> places;
  for (const std::vector<size_t>& kind : kinds) {
    places.insert(places.end(), kind.begin(), kind.end());
  }
  return places;
}

}  // namespace tandem
