#include "tests/fuzz/fuzz_input.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "glog/logging.h"

// Options for AddressSanitizer, where it is on. A tensor too big for memory is
// an error of LibTorch, as without it.
extern "C" const char* __asan_default_options();  // NOLINT: its name
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:detect_stack_use_after_return=1:"
         "strict_string_checks=1";
}

namespace tandem {
namespace {

struct ScratchFolder {
  ScratchFolder() {
    const char* given = std::getenv("TEST_TMPDIR");
    path = absl::StrCat(given == nullptr ? "/dev/shm" : given,
                        "/fuzz_input.XXXXXX");
    PCHECK(mkdtemp(path.data()) != nullptr) << path;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }

  std::string path;
};

}  // namespace

absl::string_view InputText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

std::vector<std::string> InputParts(absl::string_view input, size_t parts) {
  std::vector<std::string> result =
      absl::StrSplit(input, absl::MaxSplits(kPartSeparator, parts - 1));
  result.resize(parts);
  return result;
}

const std::string& InputFolder() {
  static const ScratchFolder folder;
  return folder.path;
}

std::string InputFile(const std::string& name, absl::string_view bytes) {
  const std::string path = absl::StrCat(InputFolder(), "/", name);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  CHECK(file.good()) << path;
  return path;
}

}  // namespace tandem
