// Safetensors files (core/checkpoint/safetensors.h): header and values.

#include "core/checkpoint/safetensors.h"
#include "glog/logging.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem {
namespace {

// What is taken is written as it was read.
void CheckHeader(const SafetensorsReader& reader) {
  const std::string text =
      FormatSafetensorsHeader({reader.entries(), reader.metadata()});
  const uint64_t bytes =
      reader.entries().empty() ? 0 : reader.entries().back().end;
  const auto again = ParseSafetensorsHeader(text, bytes);
  CHECK(again.ok()) << again.status();
  CHECK_EQ(again->entries.size(), reader.entries().size());
}

void ReadAll(const std::string& path, SafetensorsReader::Damage damage) {
  const auto reader = SafetensorsReader::Open(path, damage);
  if (!reader.ok()) return;
  CheckHeader(**reader);
  for (const SafetensorsEntry& entry : (*reader)->entries()) {
    const absl::Status verified = (*reader)->Verify(entry);
    const auto tensor = (*reader)->Read(entry);
    if (!tensor.ok()) continue;
    CHECK_EQ(tensor->nbytes(), entry.bytes());
    CHECK(verified.ok() || damage == SafetensorsReader::Damage::kTold);
  }
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path =
      tandem::InputFile("input.safetensors", tandem::InputText(data, size));
  tandem::ReadAll(path, tandem::SafetensorsReader::Damage::kRefused);
  tandem::ReadAll(path, tandem::SafetensorsReader::Damage::kTold);
  return 0;
}
