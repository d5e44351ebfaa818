// tokenizer.model (datasets/tokenizers/sentence_piece_tokenizer.h).

#include "datasets/tokenizers/sentence_piece_tokenizer.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/tokenizer_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path =
      tandem::InputFile("tokenizer.model", tandem::InputText(data, size));
  tandem::CheckTokenizer(tandem::ReadSentencePiece(path));
  return 0;
}
