// Group files: a node rendezvous for tests, which say themselves what each node
// of an elastic job hears, and when.

#ifndef TANDEM_TESTS_CORE_LAUNCH_GROUP_FILES_H_
#define TANDEM_TESTS_CORE_LAUNCH_GROUP_FILES_H_

#include <memory>
#include <string>

#include "core/elastic/node_group.h"

namespace tandem {

// Node `node`'s part of it, in files of `folder`. Of one thread.
std::unique_ptr<NodeRendezvous> MeetInFiles(const std::string& folder,
                                            int node);

// Has that node hear this from now on.
void TellNode(const std::string& folder, int node, const NodeGroup& group);

// What it has said last: "waits for 1", "runs 0", "is done" or "has left"; "":
// nothing yet.
std::string LastWordOf(const std::string& folder, int node);

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_LAUNCH_GROUP_FILES_H_
