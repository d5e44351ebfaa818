// A temporary folder that goes with an object.

#ifndef TANDEM_TOOLS_BENCH_SCRATCH_FOLDER_H_
#define TANDEM_TOOLS_BENCH_SCRATCH_FOLDER_H_

#include <string>

namespace tandem {

class ScratchFolder {
 public:
  // `name` is part of its path.
  explicit ScratchFolder(const std::string& name);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  // Empty if it could not be made.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_SCRATCH_FOLDER_H_
