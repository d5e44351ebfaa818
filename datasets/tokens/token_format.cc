#include "datasets/tokens/token_format.h"

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

constexpr absl::string_view kTokenMagic = "TANDEMTK";
constexpr uint32_t kVersion = 1;
constexpr uint64_t kNoToken = ~uint64_t{0};
// So that no sum of sizes overflows.
constexpr uint64_t kMost = uint64_t{1} << 56;

struct Fields {
  char magic[8];
  uint32_t version;
  uint32_t token_bytes;
  uint64_t vocabulary;
  uint64_t tokens;
  uint64_t documents;
  uint64_t end_of_text;
  char reserved[16];
};
static_assert(sizeof(Fields) == TokenHeader::kBytes);

absl::Status Check(const Fields& fields) {
  if (fields.version != kVersion) {
    return absl::DataLossError(absl::StrCat("version ", fields.version,
                                            " of tandem's token files, "
                                            "expected ",
                                            kVersion));
  }
  const bool sizes = (fields.token_bytes == 2 || fields.token_bytes == 4) &&
                     fields.tokens < kMost && fields.documents < kMost &&
                     fields.vocabulary > 0 &&
                     fields.vocabulary <= uint64_t{1} << 32 &&
                     (fields.end_of_text == kNoToken ||
                      fields.end_of_text < fields.vocabulary);
  if (!sizes) return absl::DataLossError("its header makes no sense");
  return absl::OkStatus();
}

}  // namespace

int64_t TokenHeader::documents_begin() const {
  return (kBytes + tokens * token_bytes + 7) / 8 * 8;
}

int64_t TokenHeader::file_bytes() const {
  return documents_begin() + documents * 8;
}

std::string WriteTokenHeader(const TokenHeader& header) {
  Fields fields = {};
  std::memcpy(fields.magic, kTokenMagic.data(), kTokenMagic.size());
  fields.version = kVersion;
  fields.token_bytes = static_cast<uint32_t>(header.token_bytes);
  fields.vocabulary = static_cast<uint64_t>(header.vocabulary);
  fields.tokens = static_cast<uint64_t>(header.tokens);
  fields.documents = static_cast<uint64_t>(header.documents);
  fields.end_of_text =
      header.end_of_text.has_value() ? uint64_t{*header.end_of_text} : kNoToken;
  return std::string(reinterpret_cast<const char*>(&fields), sizeof(fields));
}

bool IsTokenHeader(absl::string_view bytes) {
  return absl::StartsWith(bytes, kTokenMagic);
}

absl::StatusOr<TokenHeader> ReadTokenHeader(absl::string_view bytes,
                                            int64_t file_bytes) {
  if (bytes.size() < sizeof(Fields)) {
    return absl::DataLossError(absl::StrCat(
        file_bytes, " bytes, fewer than the header of tandem's token files"));
  }
  Fields fields;
  std::memcpy(&fields, bytes.data(), sizeof(fields));
  if (const absl::Status status = Check(fields); !status.ok()) {
    return status;
  }
  TokenHeader header;
  header.token_bytes = static_cast<int>(fields.token_bytes);
  header.vocabulary = static_cast<int64_t>(fields.vocabulary);
  header.tokens = static_cast<int64_t>(fields.tokens);
  header.documents = static_cast<int64_t>(fields.documents);
  if (fields.end_of_text != kNoToken) {
    header.end_of_text = static_cast<uint32_t>(fields.end_of_text);
  }
  if (header.file_bytes() == file_bytes) return header;
  return absl::DataLossError(
      absl::StrCat("its header says ", header.tokens, " tokens of ",
                   header.token_bytes, " bytes and ", header.documents,
                   " documents, which is a file of ", header.file_bytes(),
                   " bytes, but it has ", file_bytes, "; make it again"));
}

}  // namespace tandem
