#include "tools/texts/text_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "datasets/tokenizers/tokenizer_files.h"

namespace tandem {
namespace {

struct Kind {
  absl::string_view begin;
  const char* what;
  const char* remedy;
};

// None of these is the beginning of a text in UTF-8 that anybody wrote.
constexpr Kind kKinds[] = {
    {"\x1f\x8b", "is compressed by gzip",
     "unpack it: gunzip; or have its name end with .gz"},
    {"\x28\xb5\x2f\xfd", "is compressed by zstd",
     "unpack it: zstd -d; or have its name end with .zst"},
    {"\xfd"
     "7zXZ",
     "is compressed by xz", "unpack it: xz -d"},
    {"\x04\x22\x4d\x18", "is compressed by LZ4", "unpack it: lz4 -d"},
    {"PK\x03\x04", "is a zip archive", "unpack it: unzip"},
    {"7z\xbc\xaf\x27\x1c", "is a 7z archive", "unpack it: 7z x"},
    {"PAR1\x15", "is Parquet", "write its texts as a .jsonl file"},
    {"\xff\xfe", "is in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"},
    {"\xfe\xff", "is in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"},
};

bool IsBzip2(absl::string_view beginning) {
  return absl::StartsWith(beginning, "BZh") && beginning.size() > 4 &&
         absl::StartsWith(beginning.substr(4), "1AY&SY");
}

absl::Status Refuse(const std::string& path, absl::string_view what,
                    absl::string_view remedy) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, " is no text: it ", what, "; ", remedy));
}

namespace fs = std::filesystem;

constexpr size_t kMostKinds = 6;  // that are told by name
constexpr size_t kCheckedBytes = 64 << 10;

absl::Status CannotRead(const fs::path& path, const std::error_code& error) {
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("cannot read ", path.string()));
}

// ".txt" of "BOOK.TXT", and of "BOOK.TXT.GZ".
std::string FileEnd(const fs::path& path) {
  const bool is_packed = PackingByName(path.string()) != Packing::kNone;
  return absl::AsciiStrToLower(
      (is_packed ? path.stem() : path).extension().string());
}

bool IsText(const fs::path& path) {
  const std::string end = FileEnd(path);
  return end == ".txt" || end == ".md" || end == ".jsonl";
}

// Before anything is done with those that come before it.
absl::Status CheckBeginning(const fs::path& path) {
  TANDEM_ASSIGN_OR_RETURN(
      const auto stream,
      TextStream::Open(path.string(), PackingByName(path.string())));
  std::string beginning(kCheckedBytes, '\0');
  TANDEM_ASSIGN_OR_RETURN(const size_t size,
                          stream->Read(beginning.data(), beginning.size()));
  beginning.resize(size);
  return CheckIsText(path.string(), beginning);
}

absl::Status AddFile(const fs::path& path, TextFiles* found) {
  std::error_code error;
  const auto bytes = static_cast<int64_t>(fs::file_size(path, error));
  if (error) return CannotRead(path, error);
  TANDEM_RETURN_IF_ERROR(CheckBeginning(path));
  found->files.push_back({path.string(), bytes, FileEnd(path) == ".jsonl",
                          PackingByName(path.string())});
  return absl::OkStatus();
}

absl::Status AddEntry(const fs::directory_entry& entry,
                      std::vector<fs::path>* folders, TextFiles* found) {
  const fs::path& path = entry.path();
  std::error_code error;
  if (entry.is_directory(error)) {
    // One that leads to a folder may lead in a circle.
    if (entry.is_symlink(error)) {
      ++found->left_out["linked folder(s)"];
    } else {
      folders->push_back(path);
    }
    return absl::OkStatus();
  }
  const bool is_file = entry.is_regular_file(error);
  if (is_file && IsText(path) && !IsTokenizerFile(path.string())) {
    return AddFile(path, found);
  }
  const std::string end = absl::AsciiStrToLower(path.extension().string());
  const bool is_own = is_file && IsText(path);
  ++found->left_out[is_own        ? "of a tokenizer"
                    : end.empty() ? "without an ending"
                                  : end];
  return absl::OkStatus();
}

// Made by file systems, for root alone, and never of texts.
bool IsOfTheSystem(const fs::path& folder) {
  return folder.filename() == "lost+found";
}

// Adds the files of `folder` and of the folders within it.
absl::Status AddFolder(const fs::path& folder, TextFiles* found) {
  std::vector<fs::path> waiting = {folder};
  while (!waiting.empty()) {
    const fs::path next = std::move(waiting.back());
    waiting.pop_back();
    std::error_code error;
    fs::directory_iterator entry(next, error);
    while (!error && entry != fs::directory_iterator()) {
      TANDEM_RETURN_IF_ERROR(AddEntry(*entry, &waiting, found));
      entry.increment(error);
    }
    if (error && !IsOfTheSystem(next)) return CannotRead(next, error);
  }
  std::sort(found->files.begin(), found->files.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  return absl::OkStatus();
}

absl::Status NoTexts(const std::string& input, const TextFiles& found) {
  const std::string left_out = DescribeLeftOut(found);
  return absl::InvalidArgumentError(absl::StrCat(
      input, " is no file, and no folder of .txt, .md or .jsonl files",
      left_out.empty() ? "" : absl::StrCat("; it has others: ", left_out)));
}

}  // namespace

absl::Status CheckIsText(const std::string& path, absl::string_view beginning) {
  for (const Kind& kind : kKinds) {
    if (absl::StartsWith(beginning, kind.begin)) {
      return Refuse(path, kind.what, kind.remedy);
    }
  }
  if (IsBzip2(beginning)) {
    return Refuse(path, "is compressed by bzip2", "unpack it: bunzip2");
  }
  const size_t zero = beginning.find('\0');
  if (zero == absl::string_view::npos) return absl::OkStatus();
  return Refuse(path, absl::StrCat("has a byte 0, byte ", zero),
                "leave it out, or take such bytes out: tr -d '\\000'");
}

absl::StatusOr<TextFiles> FindTextFiles(const std::string& input) {
  std::error_code error;
  const fs::file_status status = fs::status(input, error);
  if (!fs::exists(status)) {
    return absl::NotFoundError(
        absl::StrCat("there is no file or folder '", input, "' to read"));
  }
  TextFiles found;
  if (fs::is_regular_file(status)) {
    if (FileEnd(input) == ".json") {
      return absl::InvalidArgumentError(absl::StrCat(
          input,
          " is JSON by its name: documents are read from a .jsonl file, an "
          "object a line; one that is so is to be called so"));
    }
    TANDEM_RETURN_IF_ERROR(AddFile(input, &found));
  }
  if (fs::is_directory(status)) {
    TANDEM_RETURN_IF_ERROR(AddFolder(input, &found));
  }
  if (found.files.empty()) return NoTexts(input, found);
  return found;
}

std::string DescribeLeftOut(const TextFiles& found) {
  std::vector<std::pair<std::string, int64_t>> kinds(found.left_out.begin(),
                                                     found.left_out.end());
  std::stable_sort(
      kinds.begin(), kinds.end(),
      [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  int64_t others = 0;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const auto& [kind, count] = kinds[i];
    if (i >= kMostKinds) {
      others += count;
    } else {
      absl::StrAppend(&text, i == 0 ? "" : ", ", count, " ", kind);
    }
  }
  if (others > 0) absl::StrAppend(&text, ", ", others, " of other kinds");
  return text;
}

}  // namespace tandem
