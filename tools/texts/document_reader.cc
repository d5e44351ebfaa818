#include "tools/texts/document_reader.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/json_error.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "tools/texts/text_files.h"
#include "tools/texts/text_stream.h"

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

namespace {

using Json = nlohmann::json;
using Take = std::function<absl::Status(const DocumentPiece&)>;

constexpr size_t kBlockBytes = 1 << 20;
constexpr size_t kSearchBytes = 64 << 10;
constexpr size_t kMostLineBytes = 256 << 20;
constexpr char kByteOrderMark[] = "\xef\xbb\xbf";

class TextReader {
 public:
  TextReader(const ReadDocumentsOptions& options, const Take& take)
      : options_(options), take_(take), is_cut_(options.cut_after < 0) {}

  // More of the text; if `last`, all that is left of it.
  absl::Status Add(absl::string_view block, bool last) {
    if (is_cut_) return HandOn(block, last);
    waiting_.append(block.data(), block.size());
    const auto place = static_cast<size_t>(options_.cut_after - done_);
    if (place >= waiting_.size() && !last) {
      const std::string before = std::move(waiting_);
      waiting_.clear();
      return HandOn(before, /*last=*/false);
    }
    const bool waits = !last && waiting_.size() - place < kSearchBytes;
    return waits ? absl::OkStatus() : Cut(place, last);
  }

 private:
  // Behind `place` of what waits; not at all where the text ends before.
  absl::Status Cut(size_t place, bool last) {
    is_cut_ = true;
    const std::string text = std::move(waiting_);
    const std::vector<size_t> places =
        CutPlaces(text, place, place + kSearchBytes, /*count=*/1);
    if (places.empty()) return HandOn(text, last);
    const absl::string_view both = text;
    TANDEM_RETURN_IF_ERROR(
        HandOn(both.substr(0, places.front()), /*last=*/false));
    is_behind_ = true;
    return HandOn(both.substr(places.front()), last);
  }

  absl::Status HandOn(absl::string_view text, bool last) {
    done_ += static_cast<int64_t>(text.size());
    const DocumentPiece piece = {text, is_first_, last, is_behind_, done_};
    is_first_ = false;
    return take_(piece);
  }

  const ReadDocumentsOptions& options_;
  const Take& take_;
  std::string waiting_;  // for a place to be cut at
  int64_t done_ = 0;     // bytes that were handed on
  bool is_first_ = true;
  bool is_cut_;  // or not to be
  bool is_behind_ = false;
};

absl::Status ReadText(const TextFile& file, const ReadDocumentsOptions& options,
                      TextStream& stream, const Take& take) {
  TextReader reader(options, take);
  // Which block is the last one the next one tells.
  std::string block(kBlockBytes, '\0');
  std::string next(kBlockBytes, '\0');
  TANDEM_ASSIGN_OR_RETURN(size_t size, stream.Read(block.data(), kBlockBytes));
  for (bool is_first = true, is_last = false; !is_last; is_first = false) {
    TANDEM_ASSIGN_OR_RETURN(const size_t next_size,
                            stream.Read(next.data(), kBlockBytes));
    absl::string_view text(block.data(), size);
    is_last = next_size == 0;
    if (is_first) {
      TANDEM_RETURN_IF_ERROR(CheckIsText(file.path, text));
      absl::ConsumePrefix(&text, kByteOrderMark);
      if (text.empty() && is_last) return absl::OkStatus();
    }
    TANDEM_RETURN_IF_ERROR(reader.Add(text, is_last));
    block.swap(next);
    size = next_size;
  }
  return absl::OkStatus();
}

// Lines without their ends, as std::getline gives them.
class LineReader {
 public:
  LineReader(const TextFile& file, TextStream& stream)
      : file_(file), stream_(stream), block_(kBlockBytes, '\0') {}

  int64_t number() const { return number_; }
  int64_t bytes() const { return bytes_; }  // of all lines so far

  // The next one; nothing behind the last.
  absl::StatusOr<std::optional<std::string>> Next() {
    std::string line;
    ++number_;
    for (bool has_read = false;; has_read = true) {
      if (left_.empty()) {
        TANDEM_ASSIGN_OR_RETURN(const size_t size,
                                stream_.Read(block_.data(), kBlockBytes));
        left_ = absl::string_view(block_.data(), size);
        if (size == 0 && !has_read) return std::nullopt;
        if (size == 0) break;
      }
      const size_t end = std::min(left_.find('\n'), left_.size());
      const bool is_whole = end < left_.size();
      if (line.size() + end > kMostLineBytes) return TooLong();
      line.append(left_.data(), end);
      left_.remove_prefix(end + (is_whole ? 1 : 0));
      if (is_whole) break;
    }
    bytes_ += static_cast<int64_t>(line.size()) + 1;
    return line;
  }

 private:
  absl::Status TooLong() const {
    return absl::InvalidArgumentError(absl::StrCat(
        file_.path, ", line ", number_, ": expected a line of ",
        kMostLineBytes >> 20,
        " MiB at most, which is in memory whole: is it an object a line?"));
  }

  const TextFile& file_;
  TextStream& stream_;
  std::string block_;
  absl::string_view left_;  // of the block
  int64_t number_ = 0;
  int64_t bytes_ = 0;
};

absl::Status WrongLine(const TextFile& file, int64_t number,
                       const std::string& column, const std::string& line,
                       const Json& json) {
  const std::string place = absl::StrCat(file.path, ", line ", number);
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": expected a JSON object, found no JSON",
                     JsonErrorInLine(line)));
  }
  std::vector<std::string> columns;
  if (json.is_object()) {
    for (const auto& [name, value] : json.items()) {
      if (value.is_string()) columns.push_back(name);
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      place, ": expected a JSON object with a text in '", column, "', ",
      columns.empty() ? "found none with a text"
                      : absl::StrCat("found texts in ", ShortList(columns),
                                     "; --column says which")));
}

absl::Status ReadJsonLines(const TextFile& file,
                           const ReadDocumentsOptions& options,
                           TextStream& stream, const Take& take) {
  LineReader lines(file, stream);
  for (;;) {
    TANDEM_ASSIGN_OR_RETURN(const std::optional<std::string> line,
                            lines.Next());
    if (!line) return absl::OkStatus();
    if (absl::StripAsciiWhitespace(*line).empty()) continue;
    const Json json = Json::parse(*line, nullptr, /*allow_exceptions=*/false);
    const auto found = json.find(options.column);
    if (!json.is_object() || found == json.end() || !found->is_string()) {
      return WrongLine(file, lines.number(), options.column, *line, json);
    }
    const auto& text = found->get_ref<const std::string&>();
    if (text.empty()) continue;
    TANDEM_RETURN_IF_ERROR(
        take({text, true, true, /*behind_cut=*/false, lines.bytes()}));
  }
}

}  // namespace

absl::Status ReadDocuments(const TextFile& file,
                           const ReadDocumentsOptions& options,
                           const Take& take) {
  TANDEM_ASSIGN_OR_RETURN(const auto stream,
                          TextStream::Open(file.path, file.packing));
  const Take counted = [&](DocumentPiece piece) {
    if (file.packing != Packing::kNone) piece.bytes_read = stream->bytes_read();
    return take(piece);
  };
  return file.json_lines ? ReadJsonLines(file, options, *stream, counted)
                         : ReadText(file, options, *stream, counted);
}

}  // namespace tandem
