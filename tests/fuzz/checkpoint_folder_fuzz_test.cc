// Checkpoint folders (core/checkpoint/folder): the manifest without its
// checksum, which is put before it, and the first rank's shard.

#include "absl/strings/str_cat.h"
#include "core/checkpoint/folder/manifest.h"
#include "core/checkpoint/folder/save.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/digest/crc32.h"
#include "glog/logging.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem {
namespace {

std::string WithChecksum(const std::string& rest) {
  const uint32_t crc = Crc32(0, rest.data(), rest.size());
  return absl::StrCat("{\"crc32\":\"", absl::Hex(crc, absl::kZeroPad8), rest);
}

void CheckManifest(const std::string& text) {
  const auto manifest = ParseManifest(text);
  if (!manifest.ok()) return;
  const std::string written = FormatManifest(*manifest);
  const auto again = ParseManifest(written);
  CHECK(again.ok()) << again.status();
  CHECK_EQ(FormatManifest(*again), written);
}

void ReadAll() {
  const auto checkpoint = OpenCheckpointAt(InputFolder());
  if (!checkpoint.ok()) return;
  for (const auto* kind : {&checkpoint->model, &checkpoint->optimizer}) {
    for (const StoredTensor& each : *kind) {
      const bool good = Verify(each).ok();
      const auto values = each.read();
      CHECK(!good || values.ok()) << values.status();
    }
  }
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parts = tandem::InputParts(tandem::InputText(data, size), 2);
  tandem::CheckManifest(parts[0]);
  const std::string manifest = tandem::WithChecksum(parts[0]);
  tandem::CheckManifest(manifest);
  tandem::InputFile(tandem::kManifestFile, manifest);
  tandem::InputFile(tandem::ShardName(0), parts[1]);
  tandem::ReadAll();
  const auto collected =
      tandem::CollectShards(tandem::InputFolder(), {tandem::ShardName(0)});
  if (collected.ok()) tandem::FormatManifest(*collected);
  return 0;
}
