#include "tools/trainer/replica_check.h"

#include <ATen/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/base/short_list.h"
#include "core/base/status_macros.h"
#include "core/base/tensors.h"
#include "core/digest/crc32.h"

namespace tandem {
namespace {

// The ranks that have each fingerprint, of one place of all replicas.
using RanksByFingerprint = std::map<std::string, std::vector<int>>;

RanksByFingerprint GroupByFingerprint(
    const std::vector<std::string>& fingerprints,
    const std::vector<int>& ranks) {
  RanksByFingerprint groups;
  for (const int rank : ranks) groups[fingerprints[rank]].push_back(rank);
  return groups;
}

// The group of more than half of the ranks; none: nobody can say who is right.
const std::vector<int>* Majority(const RanksByFingerprint& groups,
                                 size_t ranks) {
  for (const auto& [fingerprint, group] : groups) {
    if (2 * group.size() > ranks) return &group;
  }
  return nullptr;
}

std::string Named(const std::vector<int>& ranks) {
  return RankList(ranks, ranks.size());
}

// "w, and 2 more parameters": what differs between two fingerprints.
std::string Differing(absl::string_view a, absl::string_view b) {
  const std::vector<absl::string_view> left = absl::StrSplit(a, '\n');
  const std::vector<absl::string_view> right = absl::StrSplit(b, '\n');
  absl::string_view first;
  size_t others = 0;
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (left[i] == right[i]) continue;
    if (!first.empty()) {
      ++others;
      continue;
    }
    first = left[i].substr(0, left[i].rfind(' '));
  }
  if (others == 0) return std::string(first);
  return absl::StrCat(first, ", and ", others, " more parameter",
                      others == 1 ? "" : "s");
}

// The difference between the first two groups, one of which may be the
// majority.
std::string DifferingParameters(const RanksByFingerprint& groups) {
  return Differing(groups.begin()->first, std::next(groups.begin())->first);
}

std::string Difference(const RanksByFingerprint& groups,
                       const std::vector<int>& ranks) {
  const std::vector<int>* const majority = Majority(groups, ranks.size());
  if (majority == nullptr) {
    return absl::StrCat(Named(ranks),
                        " have different parameters, and no majority says "
                        "whose are right (",
                        DifferingParameters(groups), ")");
  }
  std::vector<int> drifted;
  for (const int rank : ranks) {
    if (std::find(majority->begin(), majority->end(), rank) ==
        majority->end()) {
      drifted.push_back(rank);
    }
  }
  return absl::StrCat(Named(drifted), drifted.size() == 1 ? " has" : " have",
                      " drifted from ", Named(*majority), ", which are alike (",
                      DifferingParameters(groups), ")");
}

}  // namespace

absl::Status CompareReplicas(const std::vector<std::string>& fingerprints,
                             const Mesh& mesh, int64_t step) {
  std::vector<std::string> differences;
  // Along the replicas, once for each place in them: from its first rank.
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const std::vector<int> ranks = mesh.RanksOfReplicas(rank);
    if (ranks.front() != rank) continue;
    const RanksByFingerprint groups = GroupByFingerprint(fingerprints, ranks);
    if (groups.size() > 1) differences.push_back(Difference(groups, ranks));
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "replicas differ after step ", step, ": ",
      absl::StrJoin(differences, "; "),
      ". Gradients that replicas share leave them alike to the bit: memory, a "
      "processor or a link has changed some. Go on from a checkpoint, without "
      "the machine at fault"));
}

void FlipBit(const NamedTensors& parameters) {
  if (parameters.empty()) return;
  const at::NoGradGuard no_grad;
  at::Tensor first = parameters.front().second.detach().view({-1})[0];
  const at::Tensor bits = first.view(at::kInt);
  bits.bitwise_xor_(1);
}

std::string ReplicaFingerprint(NamedTensors parameters) {
  std::sort(parameters.begin(), parameters.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string fingerprint;
  for (const auto& [name, tensor] : parameters) {
    const at::Tensor values = HostValues(tensor);
    const uint32_t sum = Crc32(0, values.const_data_ptr(), values.nbytes());
    absl::StrAppend(&fingerprint, name, " ", absl::Hex(sum, absl::kZeroPad8),
                    "\n");
  }
  return fingerprint;
}

absl::Status CheckReplicasAgree(const NamedTensors& mine, const Mesh& mesh,
                                int64_t step, Communicator& world) {
  if (mesh.replicas() == 1) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      world.AllGatherString(ReplicaFingerprint(mine), [step] {
        return absl::StrCat("the check of replicas (after the update of step ",
                            step, ")");
      }));
  return CompareReplicas(all, mesh, step);
}

}  // namespace tandem
