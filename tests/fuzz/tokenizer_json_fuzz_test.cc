// tokenizer.json (datasets/tokenizers/tokenizer_json.h).

#include "datasets/tokenizers/tokenizer_json.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/tokenizer_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path =
      tandem::InputFile("tokenizer.json", tandem::InputText(data, size));
  tandem::CheckTokenizer(tandem::ReadTokenizerJson(path));
  return 0;
}
