#include "tests/core/launch/group_files.h"

#include <cstdio>
#include <fstream>
#include <iterator>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace tandem {
namespace {

std::string HeardPath(const std::string& folder, int node) {
  return absl::StrCat(folder, "/node_", node, "_hears");
}

std::string SaidPath(const std::string& folder, int node) {
  return absl::StrCat(folder, "/node_", node, "_said");
}

// Nobody reads half of it.
void Write(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new") << text;
  std::rename((path + ".new").c_str(), path.c_str());
}

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file),
          std::istreambuf_iterator<char>()};
}

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

 private:
  const std::string hears_;
  const std::string says_;
};

}  // namespace

std::unique_ptr<NodeRendezvous> MeetInFiles(const std::string& folder,
                                            int node) {
  return std::make_unique<GroupFiles>(folder, node);
}

void TellNode(const std::string& folder, int node, const NodeGroup& group) {
  Write(HeardPath(folder, node), group.Encode());
}

std::string LastWordOf(const std::string& folder, int node) {
  return Read(SaidPath(folder, node));
}

}  // namespace tandem
