#include "core/checkpoint/safetensors_checksums.h"

#include <glog/logging.h>

#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/digest/crc32.h"

namespace tandem {
namespace {

constexpr char kTensorsKey[] = "tandem.crc32.tensors";
constexpr char kHeaderKey[] = "tandem.crc32.header";
constexpr size_t kDigits = 8;

std::string Hex(uint32_t crc) {
  return absl::StrCat(absl::Hex(crc, absl::kZeroPad8));
}

// What a header says, in one way.
class HeaderCrc {
 public:
  void Add(uint64_t number) { crc_ = Crc32(crc_, &number, sizeof(number)); }
  void Add(absl::string_view text) {
    Add(uint64_t{text.size()});
    crc_ = Crc32(crc_, text.data(), text.size());
  }
  uint32_t crc() const { return crc_; }

 private:
  uint32_t crc_ = 0;
};

// Of everything but its own key.
uint32_t CrcOf(const SafetensorsHeader& header) {
  HeaderCrc crc;
  for (const auto& [key, value] : header.metadata) {
    if (key == kHeaderKey) continue;
    crc.Add(key);
    crc.Add(value);
  }
  for (const SafetensorsEntry& entry : header.entries) {
    crc.Add(entry.name);
    crc.Add(entry.DtypeText());
    crc.Add(uint64_t{entry.shape.size()});
    for (int64_t size : entry.shape) crc.Add(static_cast<uint64_t>(size));
    crc.Add(entry.begin);
    crc.Add(entry.end);
  }
  return crc.crc();
}

absl::Status Changed(const std::string& what) {
  return absl::DataLossError(
      absl::StrCat("its header was changed since it was written: ", what));
}

absl::StatusOr<std::vector<uint32_t>> ParseTensors(absl::string_view text,
                                                   size_t entries) {
  if (text.size() != entries * kDigits) {
    return Changed(absl::StrCat("it has ", entries,
                                " tensors, and checksums of ",
                                text.size() / kDigits));
  }
  std::vector<uint32_t> crcs(entries);
  for (size_t i = 0; i < entries; ++i) {
    const absl::string_view digits = text.substr(i * kDigits, kDigits);
    if (!absl::SimpleHexAtoi(digits, &crcs[i])) {
      return Changed(absl::StrCat("'", digits, "' is no checksum"));
    }
  }
  return crcs;
}

}  // namespace

void AddChecksums(const std::vector<uint32_t>& of_tensors,
                  SafetensorsHeader* header) {
  CHECK_EQ(of_tensors.size(), header->entries.size());
  std::string& tensors = header->metadata[kTensorsKey];
  tensors.clear();
  for (uint32_t crc : of_tensors) tensors += Hex(crc);
  header->metadata[kHeaderKey] = Hex(CrcOf(*header));
}

absl::StatusOr<std::optional<std::vector<uint32_t>>> TakeChecksums(
    SafetensorsHeader* header) {
  const uint32_t crc = CrcOf(*header);
  const auto of_tensors = header->metadata.extract(kTensorsKey);
  const auto of_header = header->metadata.extract(kHeaderKey);
  if (of_tensors.empty() && of_header.empty()) return std::nullopt;
  // Either alone: the name of the other was hit.
  if (of_tensors.empty() || of_header.empty()) {
    return Changed(absl::StrCat("it lacks ",
                                of_tensors.empty() ? kTensorsKey : kHeaderKey));
  }
  if (of_header.mapped() != Hex(crc)) {
    return Changed(absl::StrCat("its checksum is ", Hex(crc), ", written was '",
                                of_header.mapped(), "'"));
  }
  auto crcs = ParseTensors(of_tensors.mapped(), header->entries.size());
  if (!crcs.ok()) return crcs.status();
  return *std::move(crcs);
}

}  // namespace tandem
