#include "datasets/tokens/token_file.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/digest/crc32.h"
#include "datasets/tokens/token_writer.h"

namespace tandem {
namespace {

// "MMIDIDX\0\0", the version as uint64, and the code of the numbers' type.
constexpr absl::string_view kMagic("MMIDIDX\0\0", 9);
constexpr size_t kCodeAt = kMagic.size() + sizeof(uint64_t);
constexpr char kInt32 = 4;
constexpr char kUint16 = 8;

constexpr size_t kFewestPairs = 64;
// Upper half of a number of a vocabulary of a million tokens.
constexpr uint16_t kMostUpperHalf = 15;
// Beyond any that is that small.
constexpr uint16_t kLeastLowerHalf = 4096;

constexpr int64_t kHeaderBytes = 1024;

// One of llm.c's formats.
struct Format {
  int32_t magic;
  int32_t version;
  int token_bytes;
};

constexpr Format kFormats[] = {{20240520, 1, 2}, {20240801, 7, 4}};

template <typename T>
T NumberAt(const char* bytes) {
  T number;
  std::memcpy(&number, bytes, sizeof(number));
  return number;
}

const Format* FindFormat(int32_t magic) {
  for (const Format& each : kFormats) {
    if (each.magic == magic) return &each;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<int> TokenBytesByIndex(const std::string& path) {
  absl::string_view stem = path;
  if (!absl::ConsumeSuffix(&stem, ".bin")) return 0;
  const std::string index = absl::StrCat(stem, ".idx");
  std::ifstream file(index, std::ios::binary);
  std::string beginning(kCodeAt + 1, '\0');
  file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  if (!file || !absl::StartsWith(beginning, kMagic)) return 0;
  const char code = beginning[kCodeAt];
  if (code == kUint16) return 2;
  if (code == kInt32) return 4;
  return absl::InvalidArgumentError(absl::StrCat(
      index, " says that the numbers of ", path, " are of type ",
      static_cast<int>(code),
      " (Megatron-LM's codes), known are 8, uint16, and 4, int32"));
}

bool AreHalves(absl::Span<const uint16_t> numbers) {
  if (numbers.size() < 2 * kFewestPairs) return false;
  uint16_t most[2] = {0, 0};
  for (size_t i = 0; i < numbers.size(); ++i) {
    most[i % 2] = std::max(most[i % 2], numbers[i]);
  }
  if (most[1] == 0) return most[0] > 0;
  return most[1] <= kMostUpperHalf && most[0] >= kLeastLowerHalf;
}

absl::StatusOr<TokenFile> TokenFile::Open(const std::string& path,
                                          int token_bytes) {
  // Opening a pipe would wait for somebody to write.
  OwnedFd descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  }
  TokenFile file;
  file.path_ = path;
  file.descriptor_ = std::move(descriptor);
  struct stat status;
  if (fstat(file.descriptor_.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     " is no regular file: token numbers are read from "
                     "any place of it"));
  }
  TANDEM_RETURN_IF_ERROR(file.ReadHeader(status.st_size, token_bytes));
  return file;
}

// Without a known beginning the file has none.
absl::Status TokenFile::ReadHeader(int64_t bytes, int token_bytes) {
  const Format* format = nullptr;
  char header[3 * sizeof(int32_t)] = {};
  if (bytes >= static_cast<int64_t>(sizeof(header))) {
    TANDEM_RETURN_IF_ERROR(ReadBytes(0, header, sizeof(header)));
    if (IsTokenHeader({header, sizeof(header)})) return ReadOwnHeader(bytes);
    format = FindFormat(NumberAt<int32_t>(header));
  }
  if (format == nullptr) return ReadWithoutHeader(bytes, token_bytes);
  const auto version = NumberAt<int32_t>(header + sizeof(int32_t));
  const auto count = NumberAt<uint32_t>(header + 2 * sizeof(int32_t));
  if (version != format->version) {
    return absl::DataLossError(
        absl::StrCat(path_, ": version ", version, " of llm.c's token files (",
                     format->magic, "), expected ", format->version));
  }
  format_ = "llm.c's";
  begin_ = kHeaderBytes;
  token_bytes_ = format->token_bytes;
  size_ = count;
  if (size_ > std::numeric_limits<int32_t>::max()) {
    return absl::DataLossError(absl::StrCat(
        path_, ": its header says ", count,
        " tokens, a number that llm.c's format cannot hold; make it anew with "
        "//tools:tokenize"));
  }
  const int64_t expected = begin_ + size_ * token_bytes_;
  if (bytes == expected) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path_, ": its header says ", count, " tokens of ",
                   token_bytes_, " bytes, which is a file of ", expected,
                   " bytes, but it has ", bytes, "; fetch it again"));
}

absl::Status TokenFile::ReadWithoutHeader(int64_t bytes, int token_bytes) {
  if (token_bytes == 0) {
    TANDEM_ASSIGN_OR_RETURN(token_bytes, TokenBytesByIndex(path_));
  }
  if (token_bytes > 0) token_bytes_ = token_bytes;
  if (bytes % token_bytes_ != 0) {
    return absl::DataLossError(
        absl::StrCat(path_, ": ", bytes,
                     " bytes, which is half a token too much: without a header "
                     "it has numbers of ",
                     token_bytes_, " bytes each; fetch it again"));
  }
  size_ = bytes / token_bytes_;
  return token_bytes > 0 ? absl::OkStatus() : CheckWidth();
}

// Looks at the first numbers, which are as good as any.
absl::Status TokenFile::CheckWidth() const {
  constexpr int64_t kNumbers = 8192;
  std::vector<uint16_t> numbers(static_cast<size_t>(std::min(size_, kNumbers)));
  TANDEM_RETURN_IF_ERROR(
      ReadBytes(begin_, numbers.data(),
                static_cast<int64_t>(numbers.size() * sizeof(uint16_t))));
  if (!AreHalves(numbers)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path_,
      " has no header that says how wide its numbers are, and those of 2 bytes "
      "look like halves of wider ones, every other one being 0 or nearly so: "
      "give token_bytes 4, or 2 if that is what they are"));
}

absl::Status TokenFile::ReadOwnHeader(int64_t bytes) {
  std::string beginning(
      static_cast<size_t>(std::min(bytes, TokenHeader::kBytes)), '\0');
  TANDEM_RETURN_IF_ERROR(
      ReadBytes(0, beginning.data(), static_cast<int64_t>(beginning.size())));
  const auto header = ReadTokenHeader(beginning, bytes);
  if (!header.ok()) {
    return absl::DataLossError(
        absl::StrCat(path_, ": ", header.status().message()));
  }
  format_ = "tandem's";
  begin_ = TokenHeader::kBytes;
  token_bytes_ = header->token_bytes;
  size_ = header->tokens;
  vocabulary_ = header->vocabulary;
  end_of_text_ = header->end_of_text;
  documents_ = header->documents;
  documents_begin_ = header->documents_begin();
  return absl::OkStatus();
}

int64_t TokenFile::usual_vocabulary() const {
  if (vocabulary_ > 0) return vocabulary_;
  return token_bytes_ == 2 ? 50257 : 128256;
}

absl::Status TokenFile::ReadBytes(int64_t offset, void* to,
                                  int64_t size) const {
  char* bytes = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = pread(descriptor_.get(), bytes, size, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
    }
    if (got == 0) {
      return absl::DataLossError(
          absl::StrCat(path_, " became shorter while it was read"));
    }
    bytes += got, offset += got, size -= got;
  }
  return absl::OkStatus();
}

absl::Status TokenFile::Read(int64_t first, int64_t vocabulary,
                             absl::Span<int64_t> tokens) const {
  const auto count = static_cast<int64_t>(tokens.size());
  CHECK(first >= 0 && first <= size_ && count <= size_ - first);
  std::vector<char> bytes(tokens.size() * token_bytes_);
  TANDEM_RETURN_IF_ERROR(ReadBytes(begin_ + first * token_bytes_, bytes.data(),
                                   static_cast<int64_t>(bytes.size())));
  const char* next = bytes.data();
  for (int64_t i = 0; i < count; ++i, next += token_bytes_) {
    tokens[i] = token_bytes_ == 2 ? int64_t{NumberAt<uint16_t>(next)}
                                  : int64_t{NumberAt<uint32_t>(next)};
    if (tokens[i] < vocabulary) continue;
    return absl::DataLossError(absl::StrCat(
        path_, ": token ", first + i, " is ", tokens[i],
        ", but the vocabulary has ", vocabulary,
        ": give the vocabulary that the text was tokenized with, or fetch the "
        "file again"));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> TokenFile::Digest() const {
  constexpr int64_t kTokens = 4096;
  const int64_t count = std::min(size_, kTokens);
  std::vector<char> bytes(static_cast<size_t>(count * token_bytes_));
  uint32_t digest = Crc32(0, &size_, sizeof(size_));
  for (const int64_t first : {int64_t{0}, (size_ - count) / 2, size_ - count}) {
    TANDEM_RETURN_IF_ERROR(ReadBytes(begin_ + first * token_bytes_,
                                     bytes.data(),
                                     static_cast<int64_t>(bytes.size())));
    digest = Crc32(digest, bytes.data(), bytes.size());
  }
  return digest;
}

absl::Status TokenFile::ReadDocuments(int64_t first,
                                      absl::Span<int64_t> begins) const {
  const auto count = static_cast<int64_t>(begins.size());
  CHECK(first >= 0 && first <= documents_ && count <= documents_ - first);
  TANDEM_RETURN_IF_ERROR(
      ReadBytes(documents_begin_ + first * 8, begins.data(), count * 8));
  int64_t before = 0;
  for (int64_t i = 0; i < count; before = begins[i++]) {
    if (begins[i] >= before && begins[i] <= size_) continue;
    return absl::DataLossError(absl::StrCat(
        path_, ": document ", first + i, " begins at token ", begins[i],
        ", of ", size_, ", after one at ", before, "; make the file again"));
  }
  return absl::OkStatus();
}

}  // namespace tandem
