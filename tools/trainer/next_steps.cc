#include "tools/trainer/next_steps.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/files/user_path.h"
#include "tools/trainer/checkpoints/resume.h"
#include "tools/trainer/job/job.h"

namespace tandem {
namespace {

std::string Quoted(const std::string& path) {
  const bool is_plain =
      path.find_first_of(" \t\n'\"\\$*?&;|<>()`") == std::string::npos;
  return is_plain ? path
                  : absl::StrCat(
                        "'", absl::StrReplaceAll(path, {{"'", "'\\''"}}), "'");
}

// What goes on with this job. Whichever of the two has ended it, with more of
// one alone nothing might be left to train.
std::string GoingOn(const TrainOptions& options,
                    const std::string& checkpoint) {
  const std::string steps =
      options.max_steps > 0
          ? absl::StrCat(" --max_steps=", 2 * options.max_steps)
          : "";
  return absl::StrCat("--epochs=", options.epochs + 2, steps,
                      " --resume=", Quoted(checkpoint));
}

// What falls over more steps is higher at the step that this job has come to.
std::string NameOfGoingOn(const TrainOptions& options) {
  return FallsToTheEnd(options.lr_schedule)
             ? absl::StrCat(
                   "go on training (the learning rate rises to a "
                   "longer ",
                   options.lr_schedule, "'s)")
             : "go on training";
}

// A folder of that name beside --save_dir; NAME_2, NAME_3, ... where others are
// there. As short as it can be typed.
std::string NewFolder(const std::string& save_dir, const std::string& name) {
  namespace fs = std::filesystem;
  fs::path present = fs::path(save_dir).lexically_normal();
  if (!present.has_filename()) present = present.parent_path();
  const auto is_taken = [&](const fs::path& folder) {
    std::error_code error;
    return folder == present || fs::exists(folder, error);
  };
  std::string folder_name = name;
  for (int i = 2; is_taken(present.parent_path() / folder_name); ++i) {
    folder_name = absl::StrCat(name, "_", i);
  }
  const fs::path folder = present.parent_path() / folder_name;
  return fs::path(UserPath(folder_name)).lexically_normal() == folder
             ? folder_name
             : folder.string();
}

// What begins another job: its checkpoints have a folder of their own.
std::string AnotherJob(const TrainOptions& options, const std::string& flags,
                       const std::string& name) {
  std::string job = flags;
  if (!options.save_dir.empty()) {
    absl::StrAppend(&job,
                    " --save_dir=", Quoted(NewFolder(options.save_dir, name)));
  }
  if (!options.resume.empty() && options.resume != kResumeAuto) {
    absl::StrAppend(&job, " --resume=");
  }
  return job;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> NextSteps(
    const TrainOptions& options, const EndedJob& job) {
  std::vector<std::pair<std::string, std::string>> steps;
  if (options.eval_only) return steps;
  if (!job.checkpoint.empty()) {
    steps.emplace_back(NameOfGoingOn(options),
                       GoingOn(options, job.checkpoint));
  }
  if (job.ranks == 1 && CheckLayout(options, 2).ok()) {
    steps.emplace_back("on two ranks",
                       AnotherJob(options, "--nproc_per_node=2", "two_ranks"));
  }
  const bool has_images = !job.tokens && job.input_shape.size() == 3;
  if (has_images && options.init_from.empty() && options.model != "resnet18") {
    steps.emplace_back("another network",
                       AnotherJob(options, "--model=resnet18", "resnet18"));
  }
  return steps;
}

}  // namespace tandem
