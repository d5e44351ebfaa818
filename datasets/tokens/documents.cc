#include "datasets/tokens/documents.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

// The first document that begins behind token `place`; documents() for none.
// A few reads of 8 bytes, however many documents there are.
absl::StatusOr<int64_t> FirstBehind(const TokenFile& file, int64_t place) {
  int64_t low = 0;
  int64_t high = file.documents();
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    int64_t begin = 0;
    TANDEM_RETURN_IF_ERROR(file.ReadDocuments(middle, {&begin, 1}));
    if (begin > place) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

absl::StatusOr<std::vector<int64_t>> Listed(const TokenFile& file,
                                            int64_t first, int64_t count) {
  std::vector<int64_t> places;
  std::array<int64_t, 64> begins;
  TANDEM_ASSIGN_OR_RETURN(int64_t next, FirstBehind(file, first));
  while (next < file.documents()) {
    const auto part = static_cast<size_t>(
        std::min<int64_t>(begins.size(), file.documents() - next));
    TANDEM_RETURN_IF_ERROR(file.ReadDocuments(next, {begins.data(), part}));
    for (size_t i = 0; i < part; ++i) {
      const int64_t place = begins[i] - first;
      if (place > count) return places;
      // Documents without a token begin where the next one does.
      if (places.empty() || place > places.back()) places.push_back(place);
    }
    next += static_cast<int64_t>(part);
  }
  return places;
}

absl::StatusOr<std::vector<int64_t>> Ended(const TokenFile& file,
                                           int64_t end_of_text,
                                           int64_t vocabulary, int64_t first,
                                           int64_t count) {
  std::vector<int64_t> tokens(static_cast<size_t>(count));
  TANDEM_RETURN_IF_ERROR(file.Read(first, vocabulary, absl::MakeSpan(tokens)));
  std::vector<int64_t> places;
  for (int64_t i = 0; i < count; ++i) {
    if (tokens[static_cast<size_t>(i)] == end_of_text) places.push_back(i + 1);
  }
  return places;
}

}  // namespace

absl::Status CheckDocumentEnds(const TokenFile& file, const DocumentEnds& ends,
                               int64_t vocabulary) {
  if (file.documents() == 0 && !ends.end_of_text) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(),
        " does not say where its documents begin: give the end_of_text, the "
        "number of the token that ends each, or make the file with "
        "//tools:tokenize"));
  }
  if (file.documents() > 0 && ends.end_of_text) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), " lists its ", file.documents(),
        " documents, so leave the end_of_text ", *ends.end_of_text, " out"));
  }
  if (!ends.end_of_text ||
      (*ends.end_of_text >= 0 && *ends.end_of_text < vocabulary)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("end_of_text ", *ends.end_of_text, " is none of the ",
                   vocabulary, " tokens of ", file.path()));
}

absl::StatusOr<std::vector<int64_t>> DocumentsWithin(const TokenFile& file,
                                                     const DocumentEnds& ends,
                                                     int64_t vocabulary,
                                                     int64_t first,
                                                     int64_t count) {
  return ends.end_of_text
             ? Ended(file, *ends.end_of_text, vocabulary, first, count)
             : Listed(file, first, count);
}

}  // namespace tandem
