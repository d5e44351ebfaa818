#include "core/elastic/node_group.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/text_fields.h"

namespace tandem {
namespace {

// The enumerator of that number, the last of which is `last`.
template <typename Enum>
bool ReadEnum(std::optional<int> number, Enum last, Enum* value) {
  if (!number || *number < 0 || *number > static_cast<int>(last)) return false;
  *value = static_cast<Enum>(*number);
  return true;
}

bool ReadNodes(absl::string_view text, std::vector<int>* nodes) {
  for (absl::string_view each : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    int node = 0;
    if (!absl::SimpleAtoi(each, &node) || node < 0) return false;
    nodes->push_back(node);
  }
  return std::is_sorted(nodes->begin(), nodes->end());
}

}  // namespace

std::string NodeState::Encode() const {
  std::string text;
  AppendNumber(static_cast<int>(phase), &text);
  AppendNumber(attempt, &text);
  AppendNumber(ranks, &text);
  AppendNumber(launcher, &text);
  AppendNumber(beat, &text);
  return text;
}

bool NodeGroup::Has(int node) const {
  return std::binary_search(nodes.begin(), nodes.end(), node);
}

std::string NodeGroup::Encode() const {
  std::string text;
  AppendNumber(static_cast<int>(order), &text);
  AppendNumber(attempt, &text);
  AppendNumber(ranks_per_node, &text);
  AppendField(absl::StrJoin(nodes, ","), &text);
  AppendField(why, &text);
  return text;
}

std::optional<NodeState> DecodeNodeState(absl::string_view text) {
  NodeState state;
  const bool has_phase =
      ReadEnum(TakeNumber(&text), NodeState::Phase::kLeft, &state.phase);
  const std::optional<int> attempt = TakeNumber(&text);
  const std::optional<int> ranks = TakeNumber(&text);
  const std::optional<int64_t> launcher = TakeInt64(&text);
  const std::optional<int64_t> beat = TakeInt64(&text);
  if (!has_phase || !attempt || !ranks || !launcher || !beat) {
    return std::nullopt;
  }
  state.attempt = *attempt;
  state.ranks = *ranks;
  state.launcher = *launcher;
  state.beat = *beat;
  return state;
}

std::optional<NodeGroup> DecodeNodeGroup(absl::string_view text) {
  NodeGroup group;
  const bool has_order =
      ReadEnum(TakeNumber(&text), NodeGroup::Order::kEnd, &group.order);
  const std::optional<int> attempt = TakeNumber(&text);
  const std::optional<int> ranks = TakeNumber(&text);
  const std::optional<absl::string_view> nodes = TakeField(&text);
  const std::optional<absl::string_view> why = TakeField(&text);
  if (!has_order || !attempt || !ranks || !nodes || !why ||
      !ReadNodes(*nodes, &group.nodes)) {
    return std::nullopt;
  }
  group.attempt = *attempt;
  group.ranks_per_node = *ranks;
  group.why = std::string(*why);
  return group;
}

std::vector<int> ChooseNodes(const std::set<int>& present,
                             const std::set<int>& former, int ranks_per_node,
                             const RankCounts& counts) {
  std::vector<int> nodes(present.begin(), present.end());
  if (nodes.empty() || nodes.front() != 0) return {};
  std::stable_partition(nodes.begin() + 1, nodes.end(),
                        [&](int node) { return former.count(node) > 0; });
  const int all = static_cast<int>(nodes.size());
  nodes.resize(counts.AtMost(all * ranks_per_node).value_or(0) /
               ranks_per_node);
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

std::string NamesOfNodes(const std::vector<int>& nodes) {
  if (nodes.size() == 1) return absl::StrCat("node ", nodes.front());
  if (nodes.empty()) return "no nodes";
  return absl::StrCat("nodes ",
                      absl::StrJoin(nodes.begin(), nodes.end() - 1, ", "),
                      " and ", nodes.back());
}

}  // namespace tandem
