// Packed texts (tools/texts/text_stream.h).

#include <algorithm>
#include <vector>

#include "glog/logging.h"
#include "tests/fuzz/fuzz_input.h"
#include "tools/texts/text_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path =
      tandem::InputFile("packed", tandem::InputText(data, size));
  for (const tandem::Packing packing :
       {tandem::Packing::kGzip, tandem::Packing::kZstd}) {
    const auto stream = tandem::TextStream::Open(path, packing);
    CHECK(stream.ok()) << stream.status();
    std::vector<char> block(1 << 16);
    // A few bytes may say that there are very many.
    for (int blocks = 0; blocks < 64; ++blocks) {
      const auto got = (*stream)->Read(block.data(), block.size());
      CHECK_LE((*stream)->bytes_read(), static_cast<int64_t>(size));
      if (!got.ok() || *got < block.size()) break;
    }
  }
  return 0;
}
