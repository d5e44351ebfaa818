// Group files: a node rendezvous for tests, which say themselves what each node
// of an elastic job hears, and when.

#ifndef TANDEM_TESTS_CORE_LAUNCH_GROUP_FILES_H_
#define TANDEM_TESTS_CORE_LAUNCH_GROUP_FILES_H_

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/elastic/node_group.h"

namespace tandem {

// Node `node`'s part of it, in files of `folder`. Of one thread.
class GroupFiles : public NodeRendezvous {
 public:
  GroupFiles(const std::string& folder, int node)
      : hears_(HeardPath(folder, node)), says_(SaidPath(folder, node)) {}

  void Wait(int first) override {
    Write(says_, absl::StrCat("waits for ", first));
  }
  absl::StatusOr<NodeGroup> Group() const override {
    return DecodeNodeGroup(Read(hears_)).value_or(NodeGroup());
  }
  void Run(int attempt) override {
    Write(says_, absl::StrCat("runs ", attempt));
  }
  void Leave(bool done, const std::string& /*why*/) override {
    Write(says_, done ? "is done" : "has left");
  }

  // Has that node hear this from now on.
  static void Tell(const std::string& folder, int node,
                   const NodeGroup& group) {
    Write(HeardPath(folder, node), group.Encode());
  }

  // What it has said last: "waits for 1", "runs 0", "is done" or "has left";
  // "": nothing yet.
  static std::string LastWord(const std::string& folder, int node) {
    return Read(SaidPath(folder, node));
  }

 private:
  static std::string HeardPath(const std::string& folder, int node) {
    return absl::StrCat(folder, "/node_", node, "_hears");
  }
  static std::string SaidPath(const std::string& folder, int node) {
    return absl::StrCat(folder, "/node_", node, "_said");
  }

  // Nobody reads half of it.
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path + ".new") << text;
    std::rename((path + ".new").c_str(), path.c_str());
  }
  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file),
            std::istreambuf_iterator<char>()};
  }

  const std::string hears_;
  const std::string says_;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_LAUNCH_GROUP_FILES_H_
