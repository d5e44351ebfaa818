#include "core/pytorch_file/pytorch_file.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/base/torch_status.h"
#include "core/digest/crc32.h"
#include "core/files/regular_file.h"
#include "core/pytorch_file/pickle_tree.h"
#include "core/pytorch_file/state_dict.h"
#include "core/pytorch_file/zip_directory.h"

namespace tandem {
namespace {

constexpr absl::string_view kZip("PK\3\4", 4);
// A pickle of protocol 2 that begins with torch.serialization's MAGIC_NUMBER.
constexpr absl::string_view kLegacy(
    "\x80\2\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19", 14);

absl::StatusOr<std::string> Beginning(const RegularFile& file) {
  std::string bytes(std::min<uint64_t>(file.size(), kLegacy.size()), '\0');
  TANDEM_RETURN_IF_ERROR(file.ReadAt(0, bytes.data(), bytes.size()));
  return bytes;
}

class Archive {
 public:
  static absl::StatusOr<std::shared_ptr<const Archive>> Open(
      const std::string& path) {
    TANDEM_ASSIGN_OR_RETURN(RegularFile file, RegularFile::Open(path));
    TANDEM_ASSIGN_OR_RETURN(const std::string beginning, Beginning(file));
    if (absl::StartsWith(beginning, kLegacy)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path,
          " is in the form that torch.save had before PyTorch 1.6, which is "
          "not read: save it anew, torch.save(torch.load(FILE), OTHER)"));
    }
    TANDEM_ASSIGN_OR_RETURN(ZipDirectory records, ReadZipDirectory(file));
    auto archive = std::shared_ptr<Archive>(
        new Archive(std::move(file), std::move(records)));
    TANDEM_RETURN_IF_ERROR(archive->CheckKind());
    return archive;
  }

  absl::Status Bad(absl::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": ", why));
  }

  absl::StatusOr<std::string> ReadText(const std::string& name,
                                       uint64_t most) const {
    const ZipRecord* const record = Find(name);
    if (record == nullptr) {
      return Bad(absl::StrCat("it has no ", name, ": torch.save writes one"));
    }
    TANDEM_RETURN_IF_ERROR(CheckStored(name, *record));
    if (record->size > most) {
      return Bad(absl::StrCat(name, " has ", record->size, " bytes, at most ",
                              most, " are read"));
    }
    std::string text(record->size, '\0');
    TANDEM_RETURN_IF_ERROR(
        file_.ReadAt(record->offset, text.data(), text.size()));
    TANDEM_RETURN_IF_ERROR(
        Compare(name, *record, Crc32(0, text.data(), text.size())));
    return text;
  }

  absl::Status CheckStorage(const PickledTensor& tensor) const {
    const uint64_t element = c10::elementSize(tensor.info.dtype);
    const ZipRecord* const record = Find(StorageName(tensor));
    if (record != nullptr) {
      TANDEM_RETURN_IF_ERROR(CheckStored(StorageName(tensor), *record));
    }
    if (record == nullptr ||
        record->size / element <
            static_cast<uint64_t>(tensor.view.storage_size)) {
      return Bad(absl::StrCat("storage ", absl::CHexEscape(StorageName(tensor)),
                              " of ", absl::CHexEscape(tensor.info.name),
                              " has ", record == nullptr ? 0 : record->size,
                              " bytes, expected ", tensor.view.storage_size,
                              " elements of ", element));
    }
    return absl::OkStatus();
  }

  // The next three require that CheckStorage takes it.
  //
  // torch.save may be told to compute none (set_crc32_options): then they are
  // 0.
  bool HasChecksum(const PickledTensor& tensor) const {
    return Find(StorageName(tensor))->crc32 != 0;
  }

  // Reads a storage for its checksum once.
  absl::Status Verify(const PickledTensor& tensor) const {
    const std::string name = StorageName(tensor);
    const ZipRecord& record = *Find(name);
    if (IsKnownGood(name, record)) return absl::OkStatus();
    std::string piece(std::min(kCrc32PieceBytes, record.size), '\0');
    uint32_t crc = 0;
    for (uint64_t at = 0; at < record.size; at += piece.size()) {
      piece.resize(std::min<uint64_t>(piece.size(), record.size - at));
      TANDEM_RETURN_IF_ERROR(
          file_.ReadAt(record.offset + at, piece.data(), piece.size()));
      crc = Crc32(crc, piece.data(), piece.size());
    }
    return Compare(name, record, crc);
  }

  absl::StatusOr<at::Tensor> Read(const PickledTensor& tensor) const {
    return CatchTorchOr(
        [&]() -> absl::StatusOr<at::Tensor> { return ReadView(tensor); },
        absl::StrCat(file_.path(), ": tensor ", tensor.info.name));
  }

 private:
  Archive(RegularFile file, ZipDirectory records)
      : file_(std::move(file)), records_(std::move(records)) {
    // Records lie in a folder with a name of the writer's choice.
    if (records_.empty()) return;
    const std::string& first = records_.begin()->first;
    folder_ = first.substr(0, first.find('/') + 1);
  }

  static std::string StorageName(const PickledTensor& tensor) {
    return absl::StrCat("data/", tensor.storage);
  }

  const ZipRecord* Find(const std::string& name) const {
    const auto found = records_.find(folder_ + name);
    return found == records_.end() ? nullptr : &found->second;
  }

  absl::Status CheckStored(const std::string& name,
                           const ZipRecord& record) const {
    if (record.is_stored) return absl::OkStatus();
    return Bad(absl::StrCat(absl::CHexEscape(name),
                            " is compressed or encrypted, which torch.save "
                            "does not do"));
  }

  absl::Status CheckKind() const {
    if (Find("constants.pkl") != nullptr) {
      return Bad(
          "it is a TorchScript archive, whose code is not read: save the "
          "weights, torch.save(torch.jit.load(FILE).state_dict(), OTHER)");
    }
    if (Find("byteorder") == nullptr) return absl::OkStatus();  // before 2.1
    TANDEM_ASSIGN_OR_RETURN(const std::string order, ReadText("byteorder", 16));
    if (order == "little") return absl::OkStatus();
    return Bad("its values are not little-endian");
  }

  bool IsKnownGood(const std::string& name, const ZipRecord& record) const {
    absl::MutexLock lock(&mutex_);
    return record.crc32 == 0 || verified_.count(name) > 0;
  }

  absl::Status Compare(const std::string& name, const ZipRecord& record,
                       uint32_t found) const {
    if (record.crc32 == 0) return absl::OkStatus();
    if (found == record.crc32) {
      absl::MutexLock lock(&mutex_);
      verified_.insert(name);
      return absl::OkStatus();
    }
    return absl::DataLossError(
        absl::StrCat(file_.path(), " is damaged: ", absl::CHexEscape(name),
                     " has the checksum ", absl::Hex(found, absl::kZeroPad8),
                     ", written was ", absl::Hex(record.crc32, absl::kZeroPad8),
                     "; take another copy of it"));
  }

  // The part of the storage from the first element to the last one. Where that
  // is all of it, it is not read once more for its checksum.
  absl::StatusOr<at::Tensor> ReadView(const PickledTensor& tensor) const {
    const StorageView& view = tensor.view;
    if (IsEmpty(view)) return at::empty(view.sizes, tensor.info.dtype);
    const at::Tensor part = at::empty({SpanOf(view)}, tensor.info.dtype);
    const std::string name = StorageName(tensor);
    const ZipRecord& record = *Find(name);
    const bool is_all = view.offset == 0 && part.nbytes() == record.size;
    if (!is_all) TANDEM_RETURN_IF_ERROR(Verify(tensor));
    TANDEM_RETURN_IF_ERROR(
        file_.ReadAt(record.offset + view.offset * part.element_size(),
                     part.mutable_data_ptr(), part.nbytes()));
    if (is_all && !IsKnownGood(name, record)) {
      TANDEM_RETURN_IF_ERROR(Compare(
          name, record, Crc32(0, part.const_data_ptr(), part.nbytes())));
    }
    if (part.scalar_type() == at::kBool)
      MakeBools(part.mutable_data_ptr(), part.nbytes());
    return StoredValues(tensor, part.as_strided(view.sizes, view.strides));
  }

  static at::Tensor StoredValues(const PickledTensor& tensor,
                                 at::Tensor stored) {
    if (tensor.is_conjugate) stored = stored.conj().resolve_conj();
    if (tensor.is_negative) stored = stored.neg();
    return stored.contiguous();
  }

  const RegularFile file_;
  const ZipDirectory records_;
  std::string folder_;
  mutable absl::Mutex mutex_;
  mutable std::set<std::string> verified_ ABSL_GUARDED_BY(mutex_);  // records
};

}  // namespace

absl::StatusOr<bool> IsPyTorchFile(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const RegularFile file, RegularFile::Open(path));
  TANDEM_ASSIGN_OR_RETURN(const std::string beginning, Beginning(file));
  if (absl::StartsWith(beginning, kLegacy)) return true;
  // Where a safetensors file, whose header may be as long, has its header.
  return absl::StartsWith(beginning, kZip) && beginning.size() > 8 &&
         beginning[8] != '{';
}

absl::StatusOr<StoredTensors> OpenPyTorchFile(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const auto archive, Archive::Open(path));
  TANDEM_ASSIGN_OR_RETURN(const std::string pickle,
                          archive->ReadText("data.pkl", kMaxPickleBytes));
  const auto tree = ParsePickle(pickle, IsKnownGlobal);
  if (!tree.ok()) {
    return archive->Bad(absl::StrCat("data.pkl: ", tree.status().message()));
  }
  auto tensors = TensorsOfStateDict(*tree);
  if (!tensors.ok()) return archive->Bad(tensors.status().message());
  StoredTensors stored;
  for (PickledTensor& tensor : *tensors) {
    TANDEM_RETURN_IF_ERROR(archive->CheckStorage(tensor));
    TensorInfo info = tensor.info;
    const auto shared =
        std::make_shared<const PickledTensor>(std::move(tensor));
    StoredTensor each = {std::move(info),
                         [archive, shared] { return archive->Read(*shared); },
                         /*verify=*/nullptr};
    if (archive->HasChecksum(*shared)) {
      each.verify = [archive, shared] { return archive->Verify(*shared); };
    }
    stored.Add(std::move(each));
  }
  return stored;
}

}  // namespace tandem
