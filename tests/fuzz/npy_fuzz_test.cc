// Arrays as numpy saves them (datasets/npy_file.h).

#include <algorithm>
#include <vector>

#include "datasets/npy_file.h"
#include "glog/logging.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = tandem::NpyFile::Open(
      tandem::InputFile("input.npy", tandem::InputText(data, size)));
  if (!file.ok()) return 0;
  CHECK_LE(file->numel(), static_cast<int64_t>(size));
  int64_t numel = 1;
  for (const int64_t each : file->shape()) numel *= each;
  CHECK_EQ(numel, file->numel());
  constexpr int64_t kMost = 64;
  const int64_t count = std::min(kMost, numel);
  std::vector<float> values(static_cast<size_t>(count));
  CHECK(file->Read(numel - count, count, values.data()).ok());
  CHECK(file->Digest().ok());
  return 0;
}
