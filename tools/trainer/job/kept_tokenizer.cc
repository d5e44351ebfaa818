#include "tools/trainer/job/kept_tokenizer.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/base/torch_status.h"
#include "core/checkpoint/folder/stored_folder.h"
#include "core/comm/group_agreement.h"
#include "datasets/tokenizers/open_tokenizer.h"
#include "datasets/tokenizers/save_tokenizer.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr char kFolder[] = "tokenizer";

// The folder with the tokenizer of the job's texts; empty: nobody knows.
std::string TokenizerSource(const TrainOptions& options) {
  return HasTokenizer(options.data_dir) ? options.data_dir
                                        : KeptTokenizer(options.init_from);
}

absl::Status Keep(const TrainOptions& options) {
  const std::string source = TokenizerSource(options);
  if (source.empty()) return absl::OkStatus();
  const std::string folder = absl::StrCat(options.save_dir, "/", kFolder);
  std::error_code error;
  fs::create_directories(folder, error);
  const absl::Status kept =
      error
          ? absl::ErrnoToStatus(error.value(),
                                absl::StrCat("cannot make the folder ", folder))
          : SaveTokenizer(source, folder);
  return Annotate(kept, absl::StrCat("--save_dir=", options.save_dir));
}

}  // namespace

absl::Status KeepTokenizer(const TrainOptions& options, Communicator& world) {
  if (options.save_dir.empty() || options.dataset != "tokens") {
    return absl::OkStatus();
  }
  const absl::Status mine =
      world.rank() == 0 ? Keep(options) : absl::OkStatus();
  return AgreeOnSuccess(mine, "kept the texts' tokenizer", world);
}

std::string KeptTokenizer(const std::string& path) {
  if (path.empty()) return "";
  if (HasTokenizer(path)) return path;
  // A file, or one of a folder of checkpoints.
  std::error_code error;
  const bool is_one =
      fs::is_regular_file(path, error) || IsCheckpointFolder(path);
  const fs::path folder =
      is_one ? fs::path(path).parent_path() : fs::path(path);
  const std::string kept = (folder / kFolder).string();
  return HasTokenizer(kept) ? kept : "";
}

}  // namespace tandem
