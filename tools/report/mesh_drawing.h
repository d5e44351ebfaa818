// Mesh drawing: the ranks of a job with their stages and parts, as a table of a
// page or of a terminal.

#ifndef TANDEM_TOOLS_REPORT_MESH_DRAWING_H_
#define TANDEM_TOOLS_REPORT_MESH_DRAWING_H_

#include <cstdint>
#include <string>

#include "tools/report/job_layout.h"

namespace tandem {

// Both have ranks with their stages, replicas below each other: at most so many
// of them, and how many more there are. Both are empty for one rank with one
// device.
constexpr int64_t kMostDrawnReplicas = 8;
constexpr int64_t kMostDrawnRanks = 16;  // of a replica, or of single ones

// HTML.
std::string MeshDrawing(const JobLayout& layout);

// Lines of text, without an end of the last.
std::string MeshText(const JobLayout& layout);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_MESH_DRAWING_H_
