#include "tools/trainer/settings/comm_hook.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/edit_distance.h"
#include "core/base/status_macros.h"

namespace tandem {
namespace {

constexpr double kMost = 1e6;

// An option of PowerSGD, and what it takes.
struct Option {
  const char* name;
  const char* takes;
  // Whether the value was taken.
  bool (*read)(absl::string_view value, PowerSgdOptions* options);
};

bool ReadWhole(absl::string_view value, int64_t least, double most,
               int64_t* to) {
  return absl::SimpleAtoi(value, to) && *to >= least &&
         static_cast<double>(*to) <= most;
}

bool ReadNumber(absl::string_view value, double least, double* to) {
  return absl::SimpleAtod(value, to) && *to >= least && *to <= kMost;
}

constexpr Option kOptions[] = {
    {"rank", "a whole number from 1 to 1000000",
     [](absl::string_view value, PowerSgdOptions* options) {
       return ReadWhole(value, 1, kMost, &options->matrix_approximation_rank);
     }},
    {"start", "a number of steps, 0 or more",
     [](absl::string_view value, PowerSgdOptions* options) {
       return ReadWhole(value, 0, std::numeric_limits<double>::infinity(),
                        &options->start_power_sgd_iter);
     }},
    {"min_rate", "a factor from 1e-06 to 1e+06",
     [](absl::string_view value, PowerSgdOptions* options) {
       return ReadNumber(value, 1e-6, &options->min_compression_rate);
     }},
    {"error_feedback", "true or false",
     [](absl::string_view value, PowerSgdOptions* options) {
       return absl::SimpleAtob(value, &options->use_error_feedback);
     }},
    {"warm_start", "true or false",
     [](absl::string_view value, PowerSgdOptions* options) {
       return absl::SimpleAtob(value, &options->warm_start);
     }},
    {"epsilon", "a number from 0 to 1e+06",
     [](absl::string_view value, PowerSgdOptions* options) {
       return ReadNumber(value, 0, &options->orthogonalization_epsilon);
     }},
    {"seed", "a whole number, 0 or more",
     [](absl::string_view value, PowerSgdOptions* options) {
       return absl::SimpleAtoi(value, &options->random_seed);
     }},
};

absl::Status Refused(absl::string_view text, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--comm_hook=", text, ": ", why));
}

absl::Status ReadOption(absl::string_view text, absl::string_view given,
                        PowerSgdOptions* options) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(given, absl::MaxSplits('=', 1));
  std::vector<std::string> known;
  for (const Option& each : kOptions) {
    known.emplace_back(each.name);
    if (parts.first != each.name) continue;
    if (each.read(parts.second, options)) return absl::OkStatus();
    return Refused(text, absl::StrCat(each.name, " takes ", each.takes,
                                      ", not '", parts.second, "'"));
  }
  return Refused(
      text, absl::StrCat("PowerSGD has no option '", parts.first,
                         "'; choose one of ", NamesNear(parts.first, known)));
}

}  // namespace

bool CommHook::is_power_sgd() const {
  return absl::StartsWith(name, "powersgd");
}

std::vector<std::string> CommHookNames() {
  return {"none",     "allreduce",     "fp16",         "bf16",
          "powersgd", "powersgd_fp16", "powersgd_bf16"};
}

absl::StatusOr<CommHook> ParseCommHook(absl::string_view text) {
  const std::pair<std::string, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  CommHook hook;
  hook.name = parts.first;
  const std::vector<std::string> known = CommHookNames();
  if (std::find(known.begin(), known.end(), hook.name) == known.end()) {
    return Refused(text, absl::StrCat("unknown; choose one of ",
                                      NamesNear(hook.name, known),
                                      ", or powersgd:rank=2,start=1000"));
  }
  if (!hook.is_power_sgd() && absl::StrContains(text, ":")) {
    return Refused(text, absl::StrCat(hook.name,
                                      " has no options; powersgd, "
                                      "powersgd_fp16 and "
                                      "powersgd_bf16 have"));
  }
  for (absl::string_view given :
       absl::StrSplit(parts.second, ',', absl::SkipEmpty())) {
    TANDEM_RETURN_IF_ERROR(ReadOption(text, given, &hook.power_sgd));
  }
  return hook;
}

}  // namespace tandem
