#include "tools/trainer/next_steps.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace tandem {
namespace {

std::string Quoted(const std::string& path) {
  const bool is_plain =
      path.find_first_of(" \t\n'\"\\$*?&;|<>()`") == std::string::npos;
  return is_plain ? path
                  : absl::StrCat(
                        "'", absl::StrReplaceAll(path, {{"'", "'\\''"}}), "'");
}

// What goes on with this job, beside its own flags. Whichever of the two has
// ended it, with more of one alone nothing might be left to train.
std::string GoingOn(const TrainOptions& options,
                    const std::string& checkpoint) {
  const std::string steps =
      options.max_steps > 0
          ? absl::StrCat(" --max_steps=", 2 * options.max_steps)
          : "";
  return absl::StrCat("the same flags, with --epochs=", options.epochs + 2,
                      steps, " --resume=", Quoted(checkpoint));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> NextSteps(
    const TrainOptions& options, const EndedJob& job) {
  std::vector<std::pair<std::string, std::string>> steps;
  if (options.eval_only) return steps;
  if (!job.checkpoint.empty()) {
    steps.emplace_back("go on training", GoingOn(options, job.checkpoint));
  }
  if (job.ranks == 1 && options.batch_size % 2 == 0) {
    steps.emplace_back("on two ranks", "--nproc_per_node=2");
  }
  const bool has_images = !job.tokens && job.input_shape.size() == 3;
  if (has_images && options.init_from.empty() && options.model != "resnet18") {
    steps.emplace_back("another network",
                       "--model=resnet18 (--help lists all)");
  }
  return steps;
}

}  // namespace tandem
