#include "datasets/tokens/token_writer.h"

#include <glog/logging.h>

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

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

namespace {

template <typename T>
absl::Status AppendAs(absl::Span<const uint32_t> tokens, AtomicFile* file) {
  std::vector<T> numbers;
  numbers.reserve(tokens.size());
  for (const uint32_t token : tokens) numbers.push_back(static_cast<T>(token));
  return file->Append(numbers.data(), numbers.size() * sizeof(T));
}

}  // namespace

TokenWriter::TokenWriter(std::unique_ptr<AtomicFile> file,
                         const TokenHeader& header)
    : file_(std::move(file)), header_(header) {}

absl::StatusOr<TokenWriter> TokenWriter::Create(
    const std::string& path, int64_t vocabulary,
    std::optional<uint32_t> end_of_text) {
  TANDEM_ASSIGN_OR_RETURN(auto file, AtomicFile::Create(path));
  TokenHeader header;
  header.token_bytes = vocabulary <= int64_t{1} << 16 ? 2 : 4;
  header.vocabulary = vocabulary;
  header.end_of_text = end_of_text;
  TANDEM_RETURN_IF_ERROR(file->Append(WriteTokenHeader(header)));
  return TokenWriter(std::move(file), header);
}

void TokenWriter::BeginDocument() {
  begins_.push_back(static_cast<uint64_t>(header_.tokens));
}

absl::Status TokenWriter::Append(absl::Span<const uint32_t> tokens) {
  CHECK(!begins_.empty());
  for (const uint32_t token : tokens) CHECK_LT(token, header_.vocabulary);
  header_.tokens += static_cast<int64_t>(tokens.size());
  return header_.token_bytes == 2 ? AppendAs<uint16_t>(tokens, file_.get())
                                  : AppendAs<uint32_t>(tokens, file_.get());
}

absl::Status TokenWriter::Commit() {
  header_.documents = documents();
  const int64_t padding =
      header_.documents_begin() - static_cast<int64_t>(file_->size());
  TANDEM_RETURN_IF_ERROR(
      file_->Append(std::string(static_cast<size_t>(padding), '\0')));
  TANDEM_RETURN_IF_ERROR(
      file_->Append(begins_.data(), begins_.size() * sizeof(uint64_t)));
  TANDEM_RETURN_IF_ERROR(file_->Overwrite(0, WriteTokenHeader(header_)));
  return file_->Commit();
}

}  // namespace tandem
