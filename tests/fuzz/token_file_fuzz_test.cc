// Token files (datasets/tokens/token_file.h): tandem's, nanoGPT's, llm.c's.

#include <algorithm>
#include <vector>

#include "datasets/tokens/token_file.h"
#include "glog/logging.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem {
namespace {

constexpr int64_t kMost = 64;

void ReadSome(const TokenFile& file, int64_t first, int64_t count) {
  std::vector<int64_t> tokens(count);
  const int64_t vocabulary = file.usual_vocabulary();
  if (!file.Read(first, vocabulary, absl::MakeSpan(tokens)).ok()) return;
  for (const int64_t token : tokens) {
    CHECK(token >= 0 && token < vocabulary) << token;
  }
}

void ReadAll(const TokenFile& file) {
  const int64_t count = std::min(kMost, file.size());
  ReadSome(file, 0, count);
  ReadSome(file, file.size() - count, count);
  std::vector<int64_t> begins(std::min(kMost, file.documents()));
  if (!file.ReadDocuments(0, absl::MakeSpan(begins)).ok()) return;
  CHECK(std::is_sorted(begins.begin(), begins.end()));
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = tandem::TokenFile::Open(
      tandem::InputFile("input.bin", tandem::InputText(data, size)));
  if (file.ok()) tandem::ReadAll(*file);
  return 0;
}
