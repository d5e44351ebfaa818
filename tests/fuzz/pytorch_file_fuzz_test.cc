// Files of torch.save (core/pytorch_file/pytorch_file.h).

#include "core/pytorch_file/pytorch_file.h"
#include "glog/logging.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path =
      tandem::InputFile("input.pt", tandem::InputText(data, size));
  (void)tandem::IsPyTorchFile(path).ok();
  const auto tensors = tandem::OpenPyTorchFile(path);
  if (!tensors.ok()) return 0;
  for (const tandem::StoredTensor& each : *tensors) {
    const auto values = each.read();
    if (absl::IsDataLoss(values.status())) continue;  // by its checksum
    CHECK(values.ok()) << values.status();
    CHECK_LE(values->nbytes(), size);
  }
  return 0;
}
