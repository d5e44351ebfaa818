#include "tools/texts/document_reader.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

using Take = std::function<absl::Status(const DocumentPiece&)>;
constexpr size_t kBlockBytes = 1 << 20;

bool IsBlack(char byte) {
  return absl::ascii_isgraph(static_cast<unsigned char>(byte));
}

// The end of the first line of `text`, from `least` bytes on, after
// which it can be cut; 0: there is none.
size_t FirstCut(absl::string_view text, size_t least) {
  size_t end = text.find('\n', std::max<size_t>(least, 1));
  for (; end != absl::string_view::npos; end = text.find('\n', end + 1)) {
    if (end + 1 == text.size()) break;
    if (IsBlack(text[end - 1]) && IsBlack(text[end + 1])) return end + 1;
  }
  return 0;
}

absl::Status CannotRead(const TextFile& file) {
  return absl::ErrnoToStatus(errno == 0 ? EIO : errno,
                             absl::StrCat("cannot read ", file.path));
}

class TextReader {
 public:
  TextReader(const ReadDocumentsOptions& options, const Take& take)
      : options_(options), take_(take) {}

  // More of the text.
  absl::Status Add(absl::string_view block) {
    waiting_.append(block.data(), block.size());
    while (true) {
      const size_t cut = NextCut();
      if (cut == 0) return absl::OkStatus();
      TANDEM_RETURN_IF_ERROR(HandOn(cut, /*last=*/false));
    }
  }

  absl::Status Finish() {
    if (waiting_.empty() && done_ == 0) return absl::OkStatus();
    return HandOn(waiting_.size(), /*last=*/true);
  }

 private:
  size_t NextCut() {
    const int64_t place = options_.cut_after - done_;
    const auto waiting = static_cast<int64_t>(waiting_.size());
    if (!cut_ && options_.cut_after >= 0 && place < waiting) {
      const size_t cut =
          FirstCut(waiting_, static_cast<size_t>(std::max<int64_t>(place, 0)));
      cut_ = cut > 0;
      return cut;
    }
    if (waiting_.size() <= options_.piece_bytes) return 0;
    return FirstCut(waiting_, options_.piece_bytes);
  }

  absl::Status HandOn(size_t bytes, bool last) {
    const bool first = done_ == 0;
    done_ += static_cast<int64_t>(bytes);
    TANDEM_RETURN_IF_ERROR(take_(
        {absl::string_view(waiting_).substr(0, bytes), first, last, done_}));
    waiting_.erase(0, bytes);
    return absl::OkStatus();
  }

  const ReadDocumentsOptions& options_;
  const Take& take_;
  std::string waiting_;
  int64_t done_ = 0;
  bool cut_ = false;  // at options_.cut_after
};

absl::Status ReadText(const TextFile& file, const ReadDocumentsOptions& options,
                      const Take& take) {
  std::ifstream stream(file.path, std::ios::binary);
  if (!stream) return CannotRead(file);
  TextReader reader(options, take);
  std::vector<char> block(kBlockBytes);
  while (stream) {
    stream.read(block.data(), kBlockBytes);
    const auto got = static_cast<size_t>(stream.gcount());
    TANDEM_RETURN_IF_ERROR(reader.Add({block.data(), got}));
  }
  if (stream.bad()) return CannotRead(file);
  return reader.Finish();
}

absl::Status WrongLine(const TextFile& file, int64_t line,
                       const std::string& column, const nlohmann::json& json) {
  std::vector<std::string> columns;
  if (json.is_object()) {
    for (const auto& [name, value] : json.items()) {
      if (value.is_string()) columns.push_back(name);
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      file.path, ", line ", line, ": expected a JSON object with a text in '",
      column, "', ",
      columns.empty()
          ? "found none with a text"
          : absl::StrCat("found texts in ", absl::StrJoin(columns, ", "),
                         "; --column says which")));
}

absl::Status ReadJsonLines(const TextFile& file,
                           const ReadDocumentsOptions& options,
                           const Take& take) {
  std::ifstream stream(file.path, std::ios::binary);
  if (!stream) return CannotRead(file);
  std::string line;
  int64_t bytes = 0;
  for (int64_t number = 1; std::getline(stream, line); ++number) {
    bytes += static_cast<int64_t>(line.size()) + 1;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    const auto json =
        nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto found = json.find(options.column);
    if (!json.is_object() || found == json.end() || !found->is_string()) {
      return WrongLine(file, number, options.column, json);
    }
    const auto& text = found->get_ref<const std::string&>();
    if (text.empty()) continue;
    TANDEM_RETURN_IF_ERROR(take({text, true, true, bytes}));
  }
  return stream.bad() ? CannotRead(file) : absl::OkStatus();
}

}  // namespace

absl::Status ReadDocuments(const TextFile& file,
                           const ReadDocumentsOptions& options,
                           const Take& take) {
  return file.json_lines ? ReadJsonLines(file, options, take)
                         : ReadText(file, options, take);
}

}  // namespace tandem
