#include "datasets/images/image_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/digest/crc32.h"
#include "core/image_codec/image_codec.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// The paths of a million files, without an allocation for each.
class FileList {
 public:
  void Add(const std::string& path, int64_t its_class) {
    paths_ += path;
    ends_.push_back(paths_.size());
    classes_.push_back(static_cast<int32_t>(its_class));
  }

  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  std::string path(int64_t index) const {
    const size_t begin = index == 0 ? 0 : ends_[index - 1];
    return paths_.substr(begin, ends_[index] - begin);
  }
  int64_t ClassNumber(int64_t index) const { return classes_[index]; }

 private:
  std::string paths_;
  std::vector<size_t> ends_;
  std::vector<int32_t> classes_;
};

class ImageFolder : public ImageSource {
 public:
  // `files`: relative to `folder`.
  ImageFolder(std::string folder, std::vector<std::string> classes,
              FileList files, uint32_t digest)
      : folder_(std::move(folder)),
        classes_(std::move(classes)),
        files_(std::move(files)),
        digest_(absl::StrCat(absl::Hex(digest, absl::kZeroPad8))) {}

  int64_t size() const override { return files_.size(); }
  int64_t classes() const override {
    return static_cast<int64_t>(classes_.size());
  }
  std::string ClassName(int64_t number) const override {
    return classes_[static_cast<size_t>(number)];
  }
  std::string digest() const override { return digest_; }
  std::string ImageName(int64_t index) const override {
    return absl::StrCat(folder_, "/", files_.path(index));
  }
  int64_t ClassNumber(int64_t index) const override {
    return files_.ClassNumber(index);
  }
  absl::StatusOr<at::Tensor> Image(int64_t index) const override {
    return DecodeImageFile(ImageName(index));
  }

 private:
  const std::string folder_;
  const std::vector<std::string> classes_;  // their names
  const FileList files_;
  const std::string digest_;
};

absl::Status CannotRead(const std::string& path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot read ", path));
}

bool IsImage(const std::string& name) {
  for (const char* end : {".jpg", ".jpeg", ".png"}) {
    if (absl::EndsWithIgnoreCase(name, end)) return true;
  }
  return false;
}

struct Entries {
  std::vector<std::string> folders;  // names, sorted
  std::vector<std::string> images;
  bool has_others = false;
};

absl::StatusOr<Entries> FolderEntries(const std::string& folder) {
  Entries entries;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    std::error_code ignored;  // a link that leads nowhere is no folder
    if (entry->is_directory(ignored)) {
      entries.folders.push_back(std::move(name));
    } else if (IsImage(name)) {
      entries.images.push_back(std::move(name));
    } else {
      entries.has_others = true;
    }
  }
  if (error) return CannotRead(folder, error.value());
  std::sort(entries.folders.begin(), entries.folders.end());
  std::sort(entries.images.begin(), entries.images.end());
  return entries;
}

// The images of a folder that is not a class but holds them.
class Listing {
 public:
  explicit Listing(std::string folder) : folder_(std::move(folder)) {}

  absl::Status AddClass(const std::string& name, int64_t number) {
    // Python's sorted(os.walk()): by the folders' paths, as texts.
    std::vector<Folder> folders;
    TANDEM_RETURN_IF_ERROR(Walk(name, {}, &folders));
    std::sort(folders.begin(), folders.end(),
              [](const auto& a, const auto& b) { return a.path < b.path; });
    const int64_t before = files_.size();
    for (const Folder& each : folders) {
      for (const std::string& image : each.images) {
        TANDEM_RETURN_IF_ERROR(
            AddFile(absl::StrCat(each.path, "/", image), number));
      }
    }
    if (files_.size() > before) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("class ", folder_, "/", name,
                     " has no file called .jpg, .jpeg or .png: add some, or "
                     "remove the folder"));
  }

  std::unique_ptr<ImageSource> Finish(std::vector<std::string> classes) {
    return std::make_unique<ImageFolder>(folder_, std::move(classes),
                                         std::move(files_), digest_);
  }

 private:
  struct Folder {
    std::string path;
    std::vector<std::string> images;
  };
  using Identity = std::pair<dev_t, ino_t>;

  // `path` and what is below it. `above`: the folders that it lies in.
  absl::Status Walk(const std::string& path, std::vector<Identity> above,
                    std::vector<Folder>* folders) const {
    const std::string full = absl::StrCat(folder_, "/", path);
    struct stat status;
    if (stat(full.c_str(), &status) != 0) return CannotRead(full, errno);
    const Identity identity = {status.st_dev, status.st_ino};
    if (std::find(above.begin(), above.end(), identity) != above.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          full, " leads back to a folder that it lies in: remove the link"));
    }
    above.push_back(identity);
    TANDEM_ASSIGN_OR_RETURN(Entries entries, FolderEntries(full));
    folders->push_back({path, std::move(entries.images)});
    for (const std::string& each : entries.folders) {
      TANDEM_RETURN_IF_ERROR(
          Walk(absl::StrCat(path, "/", each), above, folders));
    }
    return absl::OkStatus();
  }

  absl::Status AddFile(const std::string& path, int64_t its_class) {
    const std::string full = absl::StrCat(folder_, "/", path);
    struct stat status;
    if (stat(full.c_str(), &status) != 0) return CannotRead(full, errno);
    if (!S_ISREG(status.st_mode) || status.st_size == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          full,
          S_ISREG(status.st_mode) ? " has no byte" : " is no regular file",
          ": expected a PNG or JPEG file; fetch it again, or remove it"));
    }
    const auto bytes = static_cast<int64_t>(status.st_size);
    digest_ = Crc32(digest_, path.c_str(), path.size() + 1);
    digest_ = Crc32(digest_, &bytes, sizeof(bytes));
    files_.Add(path, its_class);
    return absl::OkStatus();
  }

  const std::string folder_;
  FileList files_;
  uint32_t digest_ = 0;
};

bool IsFolder(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// The folders of the two sets.
struct Splits {
  std::string train;
  std::string test;
};

absl::StatusOr<Splits> FindSplits(const std::string& data_dir) {
  Splits splits = {absl::StrCat(data_dir, "/train"),
                   absl::StrCat(data_dir, "/val")};
  if (!IsFolder(splits.test)) splits.test = absl::StrCat(data_dir, "/test");
  if (IsFolder(splits.train) && IsFolder(splits.test)) return splits;
  TANDEM_ASSIGN_OR_RETURN(const Entries found, FolderEntries(data_dir));
  return absl::InvalidArgumentError(absl::StrCat(
      data_dir, " has ",
      found.folders.empty()
          ? "no folders"
          : absl::StrCat("the folders ", ShortList(found.folders)),
      ": expected train, which is trained on, and val or test, which is scored "
      "(an empty val: nothing is), each with a folder of .png and .jpg files "
      "for each class, as in train/cat/1.jpg and val/cat/2.jpg"));
}

absl::Status CheckHasClassesOf(const Entries& some, const std::string& in_some,
                               const Entries& other,
                               const std::string& in_other) {
  for (const std::string& each : some.folders) {
    if (std::binary_search(other.folders.begin(), other.folders.end(), each)) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        in_some, " has the class ", each, ", but ", in_other,
        " lacks it: expected the same folders in both, since their order "
        "numbers the classes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ImageSource>> OpenImageFolder(
    const std::string& data_dir, bool train) {
  TANDEM_ASSIGN_OR_RETURN(const Splits splits, FindSplits(data_dir));
  TANDEM_ASSIGN_OR_RETURN(const Entries trained, FolderEntries(splits.train));
  TANDEM_ASSIGN_OR_RETURN(const Entries tested, FolderEntries(splits.test));
  if (trained.folders.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        splits.train,
        " has no folders: expected one for each class, with its images"));
  }
  const bool is_nothing_tested =
      tested.folders.empty() && tested.images.empty() && !tested.has_others;
  if (!is_nothing_tested) {
    TANDEM_RETURN_IF_ERROR(
        CheckHasClassesOf(trained, splits.train, tested, splits.test));
    TANDEM_RETURN_IF_ERROR(
        CheckHasClassesOf(tested, splits.test, trained, splits.train));
  }
  Listing listing(train ? splits.train : splits.test);
  if (train || !is_nothing_tested) {
    int64_t number = 0;
    for (const std::string& each : trained.folders) {
      TANDEM_RETURN_IF_ERROR(listing.AddClass(each, number++));
    }
  }
  return listing.Finish(trained.folders);
}

}  // namespace tandem
