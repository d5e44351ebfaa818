#include "parallel/schedule/values.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem {

NamedValues ScheduleValues(const Schedule& schedule) {
  NamedValues values = {
      {"stages", absl::StrCat(schedule.stages)},
      {"microbatches", absl::StrCat(schedule.microbatches)},
  };
  for (size_t d = 0; d < schedule.actions.size(); ++d) {
    const auto word = [](std::string* out, const Action& action) {
      out->append(ToString(action, /*with_stage=*/true));
    };
    values[absl::StrCat("device ", d)] =
        absl::StrCat("stages ",
                     d < schedule.stages_of.size()
                         ? absl::StrJoin(schedule.stages_of[d], " ")
                         : "",
                     "; ", absl::StrJoin(schedule.actions[d], " ", word));
  }
  return values;
}

}  // namespace tandem
