// vocab.json and merges.txt (datasets/tokenizers/byte_pair_files.h), in this
// order.

#include "datasets/tokenizers/byte_pair_files.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/tokenizer_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parts = tandem::InputParts(tandem::InputText(data, size), 2);
  tandem::CheckTokenizer(
      tandem::ReadGpt2Files(tandem::InputFile("vocab.json", parts[0]),
                            tandem::InputFile("merges.txt", parts[1])));
  return 0;
}
