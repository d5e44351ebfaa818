#include "tools/bench/scratch_folder.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace tandem {

ScratchFolder::ScratchFolder(const std::string& name) {
  std::string pattern =
      (std::filesystem::temp_directory_path() / (name + ".XXXXXX")).string();
  if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace tandem
