#include "core/checkpoint/safetensors_header.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "core/base/dtype_names.h"
#include "core/base/status_macros.h"
#include "core/digest/crc32.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr char kMetadata[] = "__metadata__";

// Takes the parser's events as they come: a document tree would drop keys that
// come twice without a word, and would be large for a hostile file. Every
// method returns false to stop, after saying why in `error`.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  SafetensorsHeader header;
  std::string error;

  bool start_object(size_t) override {
    if (depth_ >= 2) return Fail("an object where none belongs");
    return Enter();
  }
  bool end_object() override {
    --depth_;
    return depth_ == 0 || in_metadata_ || FinishEntry();
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || field_ == "dtype") {
      return Fail("an array where none belongs");
    }
    return Enter();
  }
  bool end_array() override {
    --depth_;
    return true;
  }

  bool key(std::string& key) override {
    return depth_ == 1 ? StartEntry(key) : StartField(key);
  }

  bool string(std::string& value) override {
    if (depth_ == 2 && in_metadata_) {
      header.metadata[field_] = value;
      return true;
    }
    if (depth_ != 2 || field_ != "dtype") return Fail("unexpected text");
    const auto dtype = DtypeOfName(value);
    if (dtype.has_value()) {
      entry_.dtype = *dtype;
      return true;
    }
    entry_.unread_dtype = value;
    if (BitsOfUnreadDtype(value) > 0) return true;
    return Fail(absl::StrCat("unknown dtype '", value, "', known are ",
                             KnownDtypeNames()));
  }

  bool number_unsigned(uint64_t value) override {
    if (depth_ != 3) return Fail("unexpected number");
    if (value > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return Fail("number too large");
    }
    (field_ == "shape" ? entry_.shape : offsets_).push_back(value);
    return true;
  }
  bool number_integer(int64_t) override { return Fail("negative number"); }
  bool number_float(double, const std::string&) override {
    return Fail("number that is no integer");
  }
  // No metadata, as some writers say it.
  bool null() override {
    return (depth_ == 1 && in_metadata_) || Fail("unexpected null");
  }
  bool boolean(bool) override { return Fail("unexpected boolean"); }
  bool binary(Json::binary_t&) override { return Fail("unexpected binary"); }
  bool parse_error(size_t position, const std::string&,
                   const Json::exception&) override {
    return Fail(absl::StrCat("no valid JSON at byte ", position));
  }

 private:
  bool Fail(absl::string_view what) {
    error = name_.empty() ? std::string(what)
                          : absl::StrCat("'", name_, "': ", what);
    return false;
  }
  bool Enter() {
    ++depth_;
    return true;
  }
  bool StartEntry(const std::string& name) {
    name_ = name;
    if (!names_.insert(name).second) return Fail("comes twice");
    in_metadata_ = name == kMetadata;
    entry_ = SafetensorsEntry{};
    entry_.name = name;
    offsets_.clear();
    fields_.clear();
    return true;
  }
  bool StartField(const std::string& field) {
    field_ = field;
    if (!fields_.insert(field).second) {
      return Fail(absl::StrCat("'", field, "' comes twice"));
    }
    if (in_metadata_ || field == "dtype" || field == "shape" ||
        field == "data_offsets") {
      return true;
    }
    return Fail(absl::StrCat("unknown field '", field, "'"));
  }
  bool FinishEntry() {
    if (fields_.size() != 3) {
      return Fail("needs all of dtype, shape and data_offsets");
    }
    if (offsets_.size() != 2 || offsets_[0] > offsets_[1]) {
      return Fail("data_offsets must be two numbers, begin <= end");
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    header.entries.push_back(std::move(entry_));
    return true;
  }

  int depth_ = 0;
  std::set<std::string> names_;
  std::string name_;  // the entry being read
  bool in_metadata_ = false;
  std::string field_;  // of that entry
  std::set<std::string> fields_;
  SafetensorsEntry entry_;
  std::vector<int64_t> offsets_;
};

constexpr auto kReplace = Json::error_handler_t::replace;  // what is no UTF-8

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, kReplace);
}

int64_t ElementBits(const SafetensorsEntry& entry) {
  return entry.unread_dtype.empty()
             ? 8 * static_cast<int64_t>(c10::elementSize(entry.dtype))
             : BitsOfUnreadDtype(entry.unread_dtype);
}

// The bytes that dtype and shape ask for; nothing when they, or the strides of
// an empty tensor of that shape, overflow an int64. Elements of less than a
// byte share one, and what is left of the last is nobody's.
absl::optional<uint64_t> ExpectedBytes(const SafetensorsEntry& entry) {
  const int64_t bits = ElementBits(entry);
  // Bytes, or what makes whole bytes only all together.
  int64_t units = bits % 8 == 0 ? bits / 8 : bits;
  bool empty = false;
  for (int64_t size : entry.shape) {
    empty = empty || size == 0;
    if (__builtin_mul_overflow(units, std::max<int64_t>(size, 1), &units)) {
      return absl::nullopt;
    }
  }
  if (empty) return 0;
  return bits % 8 == 0 ? units : units / 8 + (units % 8 == 0 ? 0 : 1);
}

// The entries, in order, must cover the data without overlap or hole.
absl::Status CheckLayout(const std::vector<SafetensorsEntry>& entries,
                         uint64_t data_bytes) {
  uint64_t at = 0;
  for (const SafetensorsEntry& entry : entries) {
    const auto bytes = ExpectedBytes(entry);
    if (!bytes.has_value() || *bytes != entry.bytes()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", entry.name, "': data_offsets hold ", entry.bytes(),
                       " bytes, dtype and shape ask for ",
                       bytes.has_value() ? absl::StrCat(*bytes)
                                         : std::string("more than 2^63")));
    }
    if (entry.begin != at) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", entry.name, "': begins at byte ", entry.begin,
                       " of the data where ", at, " was expected"));
    }
    at = entry.end;
  }
  if (at == data_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the tensors need ", at, " bytes of data, the file has ",
                   data_bytes, at > data_bytes ? " (truncated?)" : ""));
}

}  // namespace

std::string SafetensorsEntry::DtypeText() const {
  return unread_dtype.empty() ? std::string(DtypeName(dtype)) : unread_dtype;
}

bool CanStandInHeader(const std::string& text) {
  try {
    Json(text).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         uint64_t data_bytes) {
  const size_t first = json.find_first_not_of(" \t\n\r");
  if (first == absl::string_view::npos || json[first] != '{') {
    return absl::InvalidArgumentError("the header does not begin with '{'");
  }
  HeaderReader reader;
  if (!Json::sax_parse(json.begin(), json.end(), &reader)) {
    return absl::InvalidArgumentError(reader.error);
  }
  auto& entries = reader.header.entries;
  std::sort(entries.begin(), entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end, a.name) <
                     std::tie(b.begin, b.end, b.name);
            });
  TANDEM_RETURN_IF_ERROR(CheckLayout(entries, data_bytes));
  return std::move(reader.header);
}

std::string FormatSafetensorsHeader(const SafetensorsHeader& header) {
  std::string text = "{";
  if (!header.metadata.empty()) {
    absl::StrAppend(&text, "\"", kMetadata, "\":",
                    Json(header.metadata).dump(-1, ' ', false, kReplace));
  }
  // Not by way of a document: one that keeps its order looks at all that it has
  // for each entry.
  for (const SafetensorsEntry& entry : header.entries) {
    absl::StrAppend(&text, text.size() > 1 ? "," : "", Quoted(entry.name),
                    ":{\"dtype\":\"", entry.DtypeText(), "\",\"shape\":[",
                    absl::StrJoin(entry.shape, ","), "],\"data_offsets\":[",
                    entry.begin, ",", entry.end, "]}");
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

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

// The checksum of everything but its own key.
uint32_t HeaderChecksum(const SafetensorsHeader& header) {
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
  header->metadata[kHeaderKey] = Hex(HeaderChecksum(*header));
}

absl::StatusOr<std::optional<std::vector<uint32_t>>> TakeChecksums(
    SafetensorsHeader* header) {
  const uint32_t crc = HeaderChecksum(*header);
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
