#include "datasets/tokens/token_writer.h"

#include <glog/logging.h>

#include <utility>

#include "core/base/status_macros.h"

namespace tandem {
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
