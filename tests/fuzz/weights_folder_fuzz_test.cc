// Folders of weights (core/weights/stored_weights.h): the index of shards, and
// a shard a.safetensors.

#include "core/weights/stored_weights.h"
#include "glog/logging.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parts = tandem::InputParts(tandem::InputText(data, size), 2);
  tandem::InputFile(tandem::kWeightsIndexFile, parts[0]);
  tandem::InputFile("a.safetensors", parts[1]);
  const auto weights = tandem::OpenWeights(tandem::InputFolder());
  if (!weights.ok()) return 0;
  CHECK_EQ(weights->files.size(), 1u);
  for (const tandem::StoredTensor& each : weights->tensors) {
    (void)tandem::Verify(each).ok();
    (void)each.read().ok();
  }
  return 0;
}
