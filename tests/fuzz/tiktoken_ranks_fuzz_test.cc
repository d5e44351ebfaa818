// tiktoken's rank files (datasets/tokenizers/byte_pair_files.h).

#include "datasets/tokenizers/byte_pair_files.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/tokenizer_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path =
      tandem::InputFile("input.tiktoken", tandem::InputText(data, size));
  tandem::CheckTokenizer(tandem::ReadTiktokenRanks(path));
  tandem::CheckTokenizer(tandem::ReadTiktokenRanks(path, tandem::kGpt4Pattern));
  return 0;
}
