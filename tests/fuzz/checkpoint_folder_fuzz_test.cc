// Checkpoint folders (core/checkpoint/folder): the manifest without its
// checksum, which is put before it, the first rank's shard, and lines
//
//   ELEMENTS|BEGIN;SIZES;STRIDES|RANGES
//
// of slices that a shard of one tensor is written with, whatever they say.

#include <ATen/Tensor.h>
#include <ATen/ops/arange.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/tensor_shard.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/folder/manifest.h"
#include "core/checkpoint/folder/save.h"
#include "core/checkpoint/folder/state_part.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/checkpoint/tensor_slice.h"
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

// Elements are numbered through all slices.
StatePart SlicesIn(const std::string& text) {
  StatePart part;
  int64_t at = 0;
  for (const auto line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, '|');
    int64_t elements = 0;
    TensorSlice slice;
    if (fields.size() != 3 || !absl::SimpleAtoi(fields[0], &elements) ||
        elements < 0 || elements > 100 || !ParseSlice(fields[1], &slice) ||
        !ParseShard(fields[2], &slice.shard)) {
      continue;
    }
    const std::string name = absl::StrCat("slice", part.tensors.size());
    part.tensors.emplace_back(name, at::arange(at, at + elements));
    part.slices[name] = slice;
    at += elements;
  }
  return part;
}

// Reads the shard that each slice is of, in the whole and alone.
void CheckSlice(const StoredTensor& stored, const at::Tensor& whole,
                const TensorSlice& slice) {
  const TensorShard shard = HeldShard(slice);
  const auto alone = StoredShard(stored, shard).read();
  CHECK(alone.ok()) << alone.status();
  CHECK(alone->equal(SelectShard(whole, shard)));
}

void CheckSlices(const std::string& text) {
  const StatePart part = SlicesIn(text);
  if (part.tensors.empty()) return;
  std::map<std::string, std::string> tensor_of_slice;
  for (const auto& each : part.slices) tensor_of_slice[each.first] = "a";
  const std::string shard = ShardName(0);
  const absl::Status written = WriteShard(
      absl::StrCat(InputFolder(), "/", shard), part, tensor_of_slice);
  CHECK(written.ok()) << written;
  auto manifest = CollectShards(InputFolder(), {shard});
  if (!manifest.ok()) return;
  manifest->metadata = CheckpointMetadata(TrainingProgress());
  InputFile(kManifestFile, FormatManifest(*manifest));
  const auto checkpoint = OpenCheckpointAt(InputFolder());
  CHECK(checkpoint.ok()) << checkpoint.status();
  const StoredTensor& stored = *checkpoint->model.begin();
  CHECK(Verify(stored).ok());
  const auto whole = stored.read();
  CHECK(whole.ok()) << whole.status();
  const at::Tensor sorted = std::get<0>(whole->flatten().sort());
  CHECK(sorted.equal(at::arange(sorted.numel())));
  for (const auto& each : part.slices) {
    CheckSlice(stored, *whole, each.second);
  }
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parts = tandem::InputParts(tandem::InputText(data, size), 3);
  tandem::CheckManifest(parts[0]);
  const std::string manifest = tandem::WithChecksum(parts[0]);
  tandem::CheckManifest(manifest);
  tandem::InputFile(tandem::kManifestFile, manifest);
  tandem::InputFile(tandem::ShardName(0), parts[1]);
  tandem::ReadAll();
  const auto collected =
      tandem::CollectShards(tandem::InputFolder(), {tandem::ShardName(0)});
  if (collected.ok()) tandem::FormatManifest(*collected);
  tandem::CheckSlices(parts[2]);
  return 0;
}
