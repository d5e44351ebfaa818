#include "parallel/sharding/optimizer_sharding.h"

#include <glog/logging.h>

#include "absl/strings/str_cat.h"
#include "core/comm/communicator.h"
#include "core/comm/group_buffer.h"

namespace tandem {

const char* Word(OptimizerSharding sharding) {
  if (sharding == OptimizerSharding::kAuto) return "auto";
  return sharding == OptimizerSharding::kOn ? "on" : "off";
}

ShardingChoice ChooseSharding(OptimizerSharding asked,
                              const OptimizerWork& work,
                              const Communicator* replicas,
                              const std::string& excluded_by) {
  if (replicas == nullptr || replicas->size() == 1) {
    return {false, "there is one replica"};
  }
  if (asked == OptimizerSharding::kOff) return {false, "not asked for"};
  if (asked == OptimizerSharding::kOn) {
    CHECK(excluded_by.empty()) << excluded_by;
    return {true, "asked for"};
  }
  if (!excluded_by.empty()) return {false, excluded_by};
  if (!SharesMemory(*replicas)) {
    return {false, "replicas do not share memory, values would be sent"};
  }
  if (work.parameters < kLeastShardedParameters) {
    return {false, absl::StrCat(work.parameters, " parameters, it pays from ",
                                kLeastShardedParameters, " on")};
  }
  if (work.state_numbers < kLeastStateNumbers) {
    return {false, "an optimizer with so little state does not pay everywhere"};
  }
  return {true, absl::StrCat(work.parameters, " parameters")};
}

}  // namespace tandem
