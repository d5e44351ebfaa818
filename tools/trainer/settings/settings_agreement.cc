#include "tools/trainer/settings/settings_agreement.h"

#include <algorithm>
#include <string>

#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/program/command_line.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/values.h"

namespace tandem {
namespace {

constexpr char kPlace[] = "says where this process stands, or where ranks meet";

constexpr FlagOfRank kFlagsOfRanks[] = {
    {"data_dir",
     "hosts may keep their copies in different places; how many samples there "
     "are is compared"},
    {"dist_url", kPlace},
    {"flight_dir", "each rank writes a file of its own"},
    {"interface", "hosts may name their network interfaces differently"},
    {"intra_op_threads",
     "hosts may have different numbers of cores; compared with --reproducible"},
    {"job_secret_file",
     "hosts may keep their copies in different places; who has another secret "
     "does not reach the store"},
    {"kernel_cache", "hosts keep their own; rank 0's choices are all ranks'"},
    {"local_rank", kPlace},
    {"log_dir", "each rank writes a log file of its own"},
    {"master_addr", kPlace},
    {"master_port", kPlace},
    {"metrics_file", "rank 0 alone writes it"},
    {"nnodes", kPlace},
    {"node_rank", kPlace},
    {"nproc_per_node", kPlace},
    {"rank", kPlace},
    {"workers", "batches are the same, however many threads prepare them"},
    {"world_size", kPlace},
};

bool MayDiffer(const std::string& flag) {
  return std::any_of(std::begin(kFlagsOfRanks), std::end(kFlagsOfRanks),
                     [&](const FlagOfRank& each) { return flag == each.name; });
}

// An empty text, of a flag that has another default, is one that was given.
bool IsGiven(const std::string& flag, const std::string& value) {
  return !value.empty() ||
         !absl::FindCommandLineFlag(flag)->DefaultValue().empty();
}

// A file's contents instead of its path.
absl::Status DescribeSchedule(NamedValues& settings) {
  const auto found = settings.find("--schedule");
  if (found == settings.end() || !IsScheduleFile(found->second)) {
    return absl::OkStatus();
  }
  std::string& schedule = found->second;
  TANDEM_ASSIGN_OR_RETURN(const Schedule read, ReadScheduleFile(schedule));
  schedule = "a file";
  for (const auto& [name, value] : ScheduleValues(read)) {
    settings[absl::StrCat("--schedule's ", name)] = value;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<const FlagOfRank> FlagsOfRanks() { return kFlagsOfRanks; }

absl::StatusOr<NamedValues> SettingsOfJob() {
  const std::map<std::string, std::string> flags = FlagValues();
  NamedValues settings;
  for (const auto& [flag, value] : flags) {
    if (MayDiffer(flag) || !IsGiven(flag, value)) continue;
    settings[absl::StrCat("--", flag)] = value;
  }
  if (flags.at("reproducible") == "true") {
    settings["--intra_op_threads"] = flags.at("intra_op_threads");
  }
  TANDEM_RETURN_IF_ERROR(DescribeSchedule(settings));
  return settings;
}

}  // namespace tandem
