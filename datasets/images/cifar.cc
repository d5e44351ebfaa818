#include "datasets/images/cifar.h"

#include <ATen/ops/from_blob.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/digest/crc32.h"
#include "core/files/regular_file.h"

namespace tandem {
namespace {

constexpr int64_t kChannels = 3;
constexpr int64_t kPixelBytes = kChannels * kCifarSide * kCifarSide;
// Half a million images: ten times what there are.
constexpr uint64_t kMostFileBytes = uint64_t{3} << 29;

int64_t RecordBytes(const CifarFormat& format) {
  return format.class_bytes + kPixelBytes;
}

class Cifar : public ImageSource {
 public:
  Cifar(const CifarFormat& format, std::string records,
        std::vector<std::string> class_names)
      : format_(format),
        records_(std::move(records)),
        class_names_(std::move(class_names)),
        digest_(absl::StrCat(absl::Hex(
            Crc32(0, records_.data(), records_.size()), absl::kZeroPad8))) {}

  int64_t size() const override {
    return static_cast<int64_t>(records_.size()) / RecordBytes(format_);
  }
  int64_t classes() const override { return format_.classes; }
  std::string ClassName(int64_t number) const override {
    const auto index = static_cast<size_t>(number);
    return index < class_names_.size() ? class_names_[index] : "";
  }
  std::string digest() const override { return digest_; }

  std::string ImageName(int64_t index) const override {
    return absl::StrCat("record ", index, " of ", format_.name);
  }
  int64_t ClassNumber(int64_t index) const override {
    return static_cast<uint8_t>(
        Record(index)[static_cast<size_t>(format_.class_bytes - 1)]);
  }

  absl::StatusOr<at::Tensor> Image(int64_t index) const override {
    // Nobody writes to it.
    auto* const pixels = const_cast<char*>(Record(index) + format_.class_bytes);
    return at::from_blob(pixels, {kChannels, kCifarSide, kCifarSide},
                         at::kByte);
  }

 private:
  const char* Record(int64_t index) const {
    return records_.data() + index * RecordBytes(format_);
  }

  const CifarFormat& format_;
  const std::string records_;
  const std::vector<std::string> class_names_;
  const std::string digest_;
};

absl::Status CheckFile(const CifarFormat& format, const std::string& path,
                       const std::string& records) {
  const auto bytes = static_cast<int64_t>(records.size());
  const int64_t record = RecordBytes(format);
  if (bytes == 0 || bytes % record != 0) {
    return absl::DataLossError(absl::StrCat(
        path, ": ", bytes, " bytes, expected whole records of ", record,
        " bytes (", format.class_bytes,
        format.class_bytes == 1 ? " class number" : " class numbers",
        ", 3 x 32 x 32 pixels), one at least; fetch it again"));
  }
  for (int64_t i = 0; i < bytes / record; ++i) {
    const auto its_class = static_cast<uint8_t>(
        records[static_cast<size_t>(i * record + format.class_bytes - 1)]);
    if (its_class < format.classes) continue;
    return absl::DataLossError(absl::StrCat(
        path, ": class ", its_class, " of record ", i, ", expected 0 to ",
        format.classes - 1, ": is it of ", format.name, "?"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadRecords(const CifarFormat& format,
                                        const std::string& path) {
  absl::StatusOr<std::string> records = ReadShortFile(path, kMostFileBytes);
  if (absl::IsNotFound(records.status())) {
    return absl::NotFoundError(absl::StrCat(
        path, " is not there: expected the folder of ", format.name,
        "'s binary version, with ", absl::StrJoin(format.train_files, ", "),
        " and ", format.test_file));
  }
  TANDEM_RETURN_IF_ERROR(records.status());
  TANDEM_RETURN_IF_ERROR(CheckFile(format, path, *records));
  return records;
}

// None where there is no such file: names are no part of what is learnt.
std::vector<std::string> ReadClassNames(const std::string& path) {
  constexpr uint64_t kMostNameBytes = 1 << 16;
  const absl::StatusOr<std::string> text = ReadShortFile(path, kMostNameBytes);
  if (!text.ok()) return {};
  std::vector<std::string> names;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    names.emplace_back(absl::StripAsciiWhitespace(line));
  }
  return names;
}

}  // namespace

const CifarFormat& Cifar10() {
  static const auto* const format = new CifarFormat{
      "CIFAR-10",
      {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
       "data_batch_4.bin", "data_batch_5.bin"},
      "test_batch.bin",
      "batches.meta.txt",
      1,
      10};
  return *format;
}

const CifarFormat& Cifar100() {
  static const auto* const format = new CifarFormat{
      "CIFAR-100", {"train.bin"}, "test.bin", "fine_label_names.txt", 2, 100};
  return *format;
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenCifar(
    const std::string& data_dir, const CifarFormat& format, bool train) {
  const std::vector<const char*> files =
      train ? format.train_files : std::vector<const char*>{format.test_file};
  std::string all;
  for (const char* const file : files) {
    TANDEM_ASSIGN_OR_RETURN(
        const std::string records,
        ReadRecords(format, absl::StrCat(data_dir, "/", file)));
    all += records;
  }
  return std::make_unique<Cifar>(
      format, std::move(all),
      ReadClassNames(absl::StrCat(data_dir, "/", format.names_file)));
}

}  // namespace tandem
