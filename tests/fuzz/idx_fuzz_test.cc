// IDX files (datasets/idx.h), gzipped or not.

#include "datasets/idx.h"
#include "glog/logging.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path =
      tandem::InputFile("input.idx", tandem::InputText(data, size));
  for (int dimensions = 1; dimensions <= 3; ++dimensions) {
    const auto array = tandem::ReadIdx(path, dimensions);
    if (!array.ok()) continue;
    CHECK_EQ(array->sizes.size(), static_cast<size_t>(dimensions));
    size_t bytes = 1;
    for (const int64_t each : array->sizes) bytes *= each;
    CHECK_EQ(array->begin + bytes, array->file.size());
  }
  return 0;
}
