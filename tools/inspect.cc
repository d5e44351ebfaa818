// Prints what a checkpoint, a safetensors file or one of torch.save holds.
//
//   bazel run //tools:inspect -- CHECKPOINT
//   bazel run //tools:inspect -- FILE
//   bazel run //tools:inspect -- --json FILE

#include <cstdio>
#include <string>

#include "absl/strings/match.h"
#include "core/files/user_path.h"
#include "tools/inspection.h"

namespace {

constexpr char kUsage[] =
    "usage: inspect [--json] CHECKPOINT|FILE\n"
    "Prints the tensors, the metadata and the fingerprint (weights_sha256) of\n"
    "a checkpoint (the newest of a folder of them), of any safetensors file,\n"
    "or of what torch.save wrote, and whether checksums hold; with --json as\n"
    "one JSON object.\n";

int Fail(const std::string& message) {
  std::fprintf(stderr, "inspect: %s\n", message.c_str());
  return 1;
}

int Print(const std::string& file, bool json) {
  const auto inspection = tandem::Inspect(tandem::UserPath(file));
  if (!inspection.ok()) return Fail(std::string(inspection.status().message()));
  const std::string text = json ? tandem::InspectionJson(*inspection) + "\n"
                                : tandem::InspectionTable(*inspection);
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
      std::fflush(stdout) == 0;
  return written ? 0 : Fail("cannot write to the standard output");
}

}  // namespace

int main(int argc, char** argv) {
  std::string file;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (argument == "--json") {
      json = true;
    } else if (absl::StartsWith(argument, "-")) {
      return Fail("unknown flag " + argument + "\n" + kUsage);
    } else if (!file.empty()) {
      return Fail("more than one file\n" + std::string(kUsage));
    } else {
      file = argument;
    }
  }
  if (file.empty()) return Fail("no file given\n" + std::string(kUsage));
  return Print(file, json);
}
