// Settings tables: what a person wants to see of a run's several hundred
// settings.

#ifndef TANDEM_TOOLS_REPORT_SETTINGS_TABLES_H_
#define TANDEM_TOOLS_REPORT_SETTINGS_TABLES_H_

#include <string>
#include <vector>

#include "tools/report/event_fields.h"
#include "tools/report/run_log.h"

namespace tandem {

// What says where a setting's line stands, and not how the job is.
EventFields WithoutPosition(const EventFields& fields);

// Settings that are not as this program's are unless they are given, and what
// follows from several (mesh, samples): what train prints at its start.
EventFields UnusualSettings(const EventFields& settings);

// Rows of a table that has all runs side by side.
struct SettingRow {
  std::string name;
  std::vector<std::string> values;  // by run; "-": it has none
};

// Settings that are not the same in all runs, in the order of the first that
// has them.
std::vector<SettingRow> DifferingSettings(const std::vector<RunLog>& runs);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_SETTINGS_TABLES_H_
