#include "tools/trainer/dry_run/dry_run.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/byte_size.h"
#include "core/base/status_macros.h"
#include "core/base/text_table.h"
#include "core/base/torch_status.h"
#include "core/device/host_resources.h"
#include "core/device/memory_category.h"
#include "core/files/file_target.h"
#include "core/program/exit_code.h"
#include "models/hugging_face/model_config.h"
#include "tools/trainer/job/devices.h"

namespace tandem {
namespace {

constexpr size_t kColumn = 14;

// "937", "1,048,576".
std::string Grouped(int64_t number) {
  std::string digits = absl::StrCat(number);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

std::string Counted(int64_t number, const std::string& what,
                    const char* ending = "s") {
  return absl::StrCat(Grouped(number), " ", what, number == 1 ? "" : ending);
}

std::string Line(std::string name, const std::string& text) {
  name.resize(kColumn, ' ');
  return absl::StrCat("  ", name, text);
}

std::string ModelLine(const JobPlan& plan) {
  const Job& job = plan.job;
  const bool from_folder =
      job.transformer.has_value() && job.transformer->from_folder;
  const std::string name =
      from_folder ? ModelType(job.transformer->model) : job.options.model;
  return absl::StrCat(
      name, ": ", Counted(CountParameters(plan.shapes), "parameter"), " in ",
      Counted(static_cast<int64_t>(plan.layers.size()), "layer"));
}

std::string DataLine(const JobPlan& plan) {
  const JobData& data = plan.job.data;
  return absl::StrCat(
      plan.job.options.dataset, ": ", Counted(data.train->size(), "sample"),
      " of [", absl::StrJoin(data.train->input_shape(), ", "),
      "] to train on, ", Grouped(data.test->size()), " to test on",
      data.train->tokens()
          ? ""
          : absl::StrCat(", ", Counted(data.train->classes(), "class", "es")));
}

std::string LayoutLine(const JobPlan& plan) {
  const Job& job = plan.job;
  const int64_t devices = job.options.devices.devices_per_rank;
  const int64_t servers = ParameterServerCount(job.options);
  return absl::StrCat(
      plan.strategy, ": ", job.mesh.ToString(), "; ",
      Counted(job.mesh.world_size(), "rank"), " with ",
      Counted(devices, "device"), " each",
      servers > 0 ? absl::StrCat(", and ", Counted(servers, "server")) : "");
}

// "8,192 tokens", in so many samples; empty: they are no text.
std::string TokensOf(const Job& job, int64_t samples) {
  const Dataset& data = *job.data.train;
  return data.tokens() ? Counted(samples * data.input_shape().front(), "token")
                       : "";
}

std::string BatchLine(const JobPlan& plan) {
  const Job& job = plan.job;
  const int64_t microbatches = plan.partition.partition.schedule.microbatches;
  const std::string tokens = TokensOf(job, job.batch_size());
  std::string text = absl::StrCat(
      Counted(job.batch_size(), "sample"),
      tokens.empty() ? "" : absl::StrCat(" (", tokens, ")"), " a step, ",
      Grouped(job.batch_size_per_replica), " of them a replica's");
  if (microbatches > 1) {
    absl::StrAppend(&text, ", in ", Grouped(microbatches),
                    " microbatches of at most ",
                    Grouped(plan.partition.microbatch));
  }
  return text;
}

// Samples of so many steps.
int64_t SamplesOf(const TrainingPlan& training, int64_t batch, int64_t steps) {
  const int64_t epochs = steps / training.steps_per_epoch;
  const int64_t rest = steps % training.steps_per_epoch;
  return epochs * training.samples_per_epoch +
         std::min(rest * batch, training.samples_per_epoch);
}

std::string StepsLine(const JobPlan& plan) {
  const TrainingPlan& training = plan.training;
  const Job& job = plan.job;
  const double epochs = static_cast<double>(training.steps) /
                        static_cast<double>(training.steps_per_epoch);
  const int64_t samples = SamplesOf(training, job.batch_size(), training.steps);
  std::string text = absl::StrCat(Counted(training.steps, "step"), ": ", epochs,
                                  epochs == 1 ? " epoch of " : " epochs of ",
                                  Grouped(training.steps_per_epoch), ", ",
                                  Counted(samples, "sample"));
  const std::string tokens = TokensOf(job, samples);
  if (!tokens.empty()) absl::StrAppend(&text, ", ", tokens);
  if (plan.start.step > 0) {
    absl::StrAppend(
        &text, "; ",
        Grouped(std::max<int64_t>(0, training.steps - plan.start.step)),
        " are left");
  }
  return text;
}

std::string DiskLine(const DiskEstimate& disk, const TrainOptions& options) {
  if (disk.made == 0) return "none are saved";
  const double bytes =
      static_cast<double>(disk.checkpoint) * static_cast<double>(disk.at_once);
  std::string text = absl::StrCat(options.keep_best == "off" ? "" : "up to ",
                                  Counted(disk.made, "checkpoint"), " of ",
                                  FormatBytes(disk.checkpoint), ", ",
                                  Grouped(disk.at_once), " at once at most");
  if (bytes < 9e18) {
    absl::StrAppend(&text, ": ", FormatBytes(static_cast<int64_t>(bytes)));
  }
  absl::StrAppend(&text, ", in ", options.save_dir);
  if (disk.free >= 0) {
    absl::StrAppend(&text, ", where ", FormatBytes(disk.free), " are free");
  }
  return text;
}

bool LacksHostMemory(int64_t needed) {
  return static_cast<uint64_t>(needed) > AvailableMemory();
}

// What the first line says; `fits`: what devices and disk lack.
std::string Verdict(const absl::Status& fits, const MemoryEstimate& memory,
                    const Job& job) {
  if (!fits.ok()) return "the job cannot start as it is, as said at the end";
  return LacksHostMemory(HostBytes(memory, job))
             ? "the job can start, but this host lacks memory for it"
             : "the job can start";
}

void AddMemory(const MemoryEstimate& memory, const JobPlan& plan,
               std::vector<std::string>* lines) {
  std::vector<std::vector<std::string>> rows = {
      {"device", "layers", "parameters"}};
  const bool is_rehearsed = memory.why_by_arithmetic.empty();
  const std::vector<MemoryCategory> shown = {
      MemoryCategory::kParameters,  MemoryCategory::kGradients,
      MemoryCategory::kOptimizer,   MemoryCategory::kActivations,
      MemoryCategory::kTemporaries, MemoryCategory::kOther};
  for (const MemoryCategory each : shown) {
    rows[0].emplace_back(each == MemoryCategory::kParameters
                             ? "values"
                             : MemoryCategoryName(each));
  }
  rows[0].emplace_back("together");
  for (size_t i = 0; i < memory.devices.size(); ++i) {
    const DeviceEstimate& each = memory.devices[i];
    std::vector<std::string> row = {absl::StrCat(i), each.layers,
                                    Grouped(each.parameters)};
    for (const MemoryCategory category : shown) {
      const int64_t bytes = each.use.by_category[static_cast<size_t>(category)];
      row.push_back(is_rehearsed || bytes > 0 ? FormatBytes(bytes) : "?");
    }
    row.push_back(FormatBytes(each.use.total));
    rows.push_back(std::move(row));
  }
  lines->push_back(absl::StrCat(
      memory.devices.size() > 1 ? "memory of a replica's devices"
                                : "memory of each device",
      is_rehearsed ? " when they hold the most" : ", by arithmetic"));
  for (absl::string_view row :
       absl::StrSplit(TextTable(rows), '\n', absl::SkipEmpty())) {
    lines->push_back(absl::StrCat("  ", row));
  }
  if (!is_rehearsed) {
    lines->push_back(
        absl::StrCat("  activations and temporary memory come on top: ",
                     memory.why_by_arithmetic));
  }
  const int64_t host = HostBytes(memory, plan.job);
  if (LacksHostMemory(host)) {
    lines->push_back(absl::StrCat(
        "  note: this host's ranks hold ", FormatBytes(host),
        " together, and it has ",
        FormatBytes(static_cast<int64_t>(AvailableMemory())), " left"));
  }
  if (plan.partition.is_measured_later) {
    lines->push_back(
        "  --balance=profile measures when the job starts: these are the cuts "
        "of --balance=parameters");
  }
  if (MeasuresMicrobatches(plan.job.options.pipeline)) {
    lines->push_back(
        "  --microbatches=auto measures when the job starts: this is for as "
        "many as without it");
  }
}

// Whether a file could be made or written there. `flag`: that names it.
absl::Status TryOutputFile(const char* flag, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const std::string name = absl::StrCat("--", flag, "=", path);
  const auto target = ResolveFileTarget(path);
  if (!target.ok()) return Annotate(target.status(), name);
  const std::string folder = ParentDirectory(target->path);
  const bool is_there = access(target->path.c_str(), F_OK) == 0;
  const std::string& tried = is_there ? target->path : folder;
  if (access(tried.c_str(), is_there ? W_OK : W_OK | X_OK) == 0) {
    return absl::OkStatus();
  }
  return RefusedIfMendable(
      absl::ErrnoToStatus(errno, absl::StrCat(name, ": cannot write ", tried)));
}

// The last of this host's ranks has the last of its devices.
absl::Status TryDevices(const TrainOptions& options, const Launch& first) {
  Launch last = first;
  last.local_rank = last.local_world_size - 1;
  return PrepareDevices(options, last).status();
}

}  // namespace

std::vector<std::string> DescribeDryRun(const JobPlan& plan,
                                        const MemoryEstimate& memory,
                                        const DiskEstimate& disk,
                                        const absl::Status& fits) {
  const TrainOptions& options = plan.job.options;
  std::vector<std::string> lines = {
      absl::StrCat("dry run: ", Verdict(fits, memory, plan.job),
                   "; nothing was computed, and nothing written"),
      Line("model", ModelLine(plan)), Line("data", DataLine(plan)),
      Line("layout", LayoutLine(plan)), Line("batch", BatchLine(plan))};
  if (!options.eval_only) {
    lines.push_back(Line("training", StepsLine(plan)));
    lines.push_back(Line("checkpoints", DiskLine(disk, options)));
  }
  for (const std::string& each : plan.start_lines) {
    lines.push_back(Line("start", each));
  }
  if (!plan.groups.description.empty() && !options.eval_only) {
    lines.push_back(Line("optimizers", plan.groups.description));
  }
  if (!plan.exempt_from_decay.empty()) {
    lines.push_back(Line("no decay", plan.exempt_from_decay));
  }
  AddMemory(memory, plan, &lines);
  return lines;
}

absl::Status DryRun(const TrainOptions& options, const Launch& first) {
  TANDEM_RETURN_IF_ERROR(TryDevices(options, first));
  TANDEM_RETURN_IF_ERROR(TryOutputFile("metrics_file", options.metrics_file));
  TANDEM_RETURN_IF_ERROR(TryOutputFile("trace_file", options.trace_file));
  TANDEM_ASSIGN_OR_RETURN(const JobPlan plan, PlanJob(options, first));
  if (!options.eval_only) {
    TANDEM_RETURN_IF_ERROR(
        CheckStepsToTrace(options, plan.start.step, plan.training.steps));
  }
  const MemoryEstimate memory = EstimateMemory(plan);
  const DiskEstimate disk = EstimateDisk(plan);
  absl::Status fits = CheckDeviceMemory(memory, options);
  fits.Update(CheckDisk(disk, options));
  if (first.rank != 0) return fits;
  for (const std::string& line : DescribeDryRun(plan, memory, disk, fits)) {
    std::printf("%s\n", line.c_str());
  }
  std::fflush(stdout);
  return fits;
}

}  // namespace tandem
