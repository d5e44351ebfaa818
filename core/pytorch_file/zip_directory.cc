#include "core/pytorch_file/zip_directory.h"

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

constexpr absl::string_view kEnd = "PK\5\6";
constexpr absl::string_view kEnd64 = "PK\6\6";
constexpr absl::string_view kLocator64 = "PK\6\7";
constexpr absl::string_view kEntry = "PK\1\2";
constexpr absl::string_view kLocal = "PK\3\4";
constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kLocator64Bytes = 20;
constexpr uint64_t kEntryBytes = 46;
constexpr uint64_t kLocalBytes = 30;
constexpr uint16_t kExtra64 = 1;
constexpr uint64_t kInExtra = 0xffffffff;  // a number that stands there

// Little-endian. Requires that the bytes are there.
template <typename Number>
uint64_t At(absl::string_view bytes, size_t place) {
  Number number = 0;
  std::memcpy(&number, bytes.data() + place, sizeof(number));
  return number;
}

// Where the central directory lies.
struct Extent {
  uint64_t offset = 0;
  uint64_t size = 0;
};

class DirectoryReader {
 public:
  explicit DirectoryReader(const RegularFile& file) : file_(file) {}

  absl::StatusOr<ZipDirectory> Read() {
    TANDEM_ASSIGN_OR_RETURN(const Extent extent, FindDirectory());
    if (extent.size > kMaxZipDirectoryBytes) {
      return Bad(absl::StrCat("its directory has ", extent.size,
                              " bytes, at most ", kMaxZipDirectoryBytes,
                              " are read"));
    }
    TANDEM_ASSIGN_OR_RETURN(const std::string bytes,
                            Bytes(extent.offset, extent.size));
    ZipDirectory directory;
    absl::string_view rest = bytes;
    while (!rest.empty()) {
      TANDEM_RETURN_IF_ERROR(AddEntry(&rest, &directory));
    }
    return directory;
  }

 private:
  absl::Status Bad(absl::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat(file_.path(), " is no usable zip archive: ", why));
  }

  bool IsWithin(uint64_t offset, uint64_t size) const {
    return offset <= file_.size() && size <= file_.size() - offset;
  }

  absl::StatusOr<std::string> Bytes(uint64_t offset, uint64_t size) const {
    if (!IsWithin(offset, size)) {
      return Bad(absl::StrCat(size, " bytes from byte ", offset,
                              " on are asked for, and it has ", file_.size()));
    }
    std::string bytes(size, '\0');
    TANDEM_RETURN_IF_ERROR(file_.ReadAt(offset, bytes.data(), size));
    return bytes;
  }

  absl::StatusOr<Extent> FindDirectory() const {
    const auto truncated = [&] {
      return Bad("it does not end as one does (it may be truncated)");
    };
    if (file_.size() < kEndBytes) return truncated();
    const uint64_t end_at = file_.size() - kEndBytes;
    TANDEM_ASSIGN_OR_RETURN(const std::string end, Bytes(end_at, kEndBytes));
    if (!absl::StartsWith(end, kEnd)) return truncated();
    if (end_at >= kLocator64Bytes) {
      TANDEM_ASSIGN_OR_RETURN(const std::string locator,
                              Bytes(end_at - kLocator64Bytes, kLocator64Bytes));
      if (absl::StartsWith(locator, kLocator64)) {
        return FindDirectory64(At<uint64_t>(locator, 8));
      }
    }
    return Extent{At<uint32_t>(end, 16), At<uint32_t>(end, 12)};
  }

  absl::StatusOr<Extent> FindDirectory64(uint64_t end_at) const {
    TANDEM_ASSIGN_OR_RETURN(const std::string end, Bytes(end_at, kEnd64Bytes));
    if (!absl::StartsWith(end, kEnd64)) return Bad("its zip64 end is damaged");
    return Extent{At<uint64_t>(end, 48), At<uint64_t>(end, 40)};
  }

  // Takes an entry's bytes off `rest`.
  absl::Status AddEntry(absl::string_view* rest, ZipDirectory* directory) {
    if (rest->size() < kEntryBytes || !absl::StartsWith(*rest, kEntry)) {
      return Bad("its directory is damaged");
    }
    const uint64_t name_bytes = At<uint16_t>(*rest, 28);
    const uint64_t extra_bytes = At<uint16_t>(*rest, 30);
    const uint64_t all =
        kEntryBytes + name_bytes + extra_bytes + At<uint16_t>(*rest, 32);
    if (rest->size() < all) return Bad("its directory is damaged");
    const absl::string_view entry = rest->substr(0, all);
    rest->remove_prefix(all);
    const std::string name(entry.substr(kEntryBytes, name_bytes));
    TANDEM_ASSIGN_OR_RETURN(
        const ZipRecord record,
        Record(name, entry,
               entry.substr(kEntryBytes + name_bytes, extra_bytes)));
    if (directory->emplace(name, record).second) return absl::OkStatus();
    return Bad(absl::StrCat("record ", absl::CHexEscape(name), " comes twice"));
  }

  absl::StatusOr<ZipRecord> Record(const std::string& name,
                                   absl::string_view entry,
                                   absl::string_view extra) const {
    uint64_t numbers[] = {At<uint32_t>(entry, 24), At<uint32_t>(entry, 20),
                          At<uint32_t>(entry, 42)};
    absl::string_view wide = WideNumbers(extra);
    for (uint64_t& number : numbers) {
      if (number != kInExtra) continue;
      if (wide.size() < sizeof(uint64_t)) return Bad("its zip64 is damaged");
      number = At<uint64_t>(wide, 0);
      wide.remove_prefix(sizeof(uint64_t));
    }
    const auto [full_size, size, local_at] = numbers;
    const bool is_encrypted = At<uint16_t>(entry, 8) % 2 == 1;
    const bool is_stored = !is_encrypted && At<uint16_t>(entry, 10) == 0;
    TANDEM_ASSIGN_OR_RETURN(const std::string local,
                            Bytes(local_at, kLocalBytes));
    const uint64_t offset = local_at + kLocalBytes + At<uint16_t>(local, 26) +
                            At<uint16_t>(local, 28);
    if (!absl::StartsWith(local, kLocal) || !IsWithin(offset, size) ||
        (is_stored && size != full_size)) {
      return Bad(
          absl::StrCat("record ", absl::CHexEscape(name), " is not within it"));
    }
    return ZipRecord{offset, size, is_stored,
                     static_cast<uint32_t>(At<uint32_t>(entry, 16))};
  }

  // The zip64 field of an entry's extra fields.
  static absl::string_view WideNumbers(absl::string_view extra) {
    while (extra.size() >= 4) {
      const uint64_t id = At<uint16_t>(extra, 0);
      const absl::string_view field = extra.substr(4, At<uint16_t>(extra, 2));
      if (id == kExtra64) return field;
      extra.remove_prefix(4 + field.size());
    }
    return {};
  }

  const RegularFile& file_;
};

}  // namespace

absl::StatusOr<ZipDirectory> ReadZipDirectory(const RegularFile& file) {
  return DirectoryReader(file).Read();
}

}  // namespace tandem
