// Prints what a checkpoint, a safetensors file or one of torch.save holds.
//
//   bazel run //tools:inspect -- CHECKPOINT
//   bazel run //tools:inspect -- FILE
//   bazel run //tools:inspect -- --json FILE

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/files/user_path.h"
#include "core/program/exit_code.h"
#include "tools/inspection.h"

namespace tandem {
namespace {

constexpr char kUsage[] =
    "usage: inspect [--json] CHECKPOINT|FILE\n"
    "Prints the tensors, the metadata and the fingerprint (weights_sha256) of\n"
    "a checkpoint (the newest of a folder of them), of any safetensors file,\n"
    "or of what torch.save wrote, and whether checksums hold; with --json as\n"
    "one JSON object.\n";

struct Arguments {
  bool asks_for_help = false;
  bool json = false;
  std::string file;
};

absl::StatusOr<Arguments> Read(int argc, char** argv) {
  Arguments read;
  const auto refused = [](const std::string& why) {
    return absl::InvalidArgumentError(
        absl::StrCat(why, "\n", absl::StripSuffix(kUsage, "\n")));
  };
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      read.asks_for_help = true;
    } else if (argument == "--json") {
      read.json = true;
    } else if (absl::StartsWith(argument, "-")) {
      return refused(absl::StrCat("unknown flag ", argument));
    } else if (!read.file.empty()) {
      return refused("more than one file");
    } else {
      read.file = argument;
    }
  }
  if (read.file.empty() && !read.asks_for_help) return refused("no file given");
  return read;
}

absl::Status Print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
      std::fflush(stdout) == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError("cannot write to the standard output");
}

absl::Status Run(int argc, char** argv) {
  TANDEM_ASSIGN_OR_RETURN(const Arguments given, Read(argc, argv));
  if (given.asks_for_help) return Print(kUsage);
  TANDEM_ASSIGN_OR_RETURN(const Inspection inspection,
                          Inspect(UserPath(given.file)));
  return Print(given.json ? InspectionJson(inspection) + "\n"
                          : InspectionTable(inspection));
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::Conclude("inspect", tandem::Run(argc, argv));
}
