#include "tools/texts/text_check.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

struct Kind {
  absl::string_view begin;
  const char* what;
  const char* remedy;
};

// None of these is the beginning of a text in UTF-8 that anybody wrote.
constexpr Kind kKinds[] = {
    {"\x1f\x8b", "is compressed by gzip", "unpack it: gunzip"},
    {"\x28\xb5\x2f\xfd", "is compressed by zstd", "unpack it: zstd -d"},
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

}  // namespace tandem
