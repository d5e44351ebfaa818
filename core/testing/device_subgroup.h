// For tests: subgroups whose tensors lie on the test's device.

#ifndef TANDEM_CORE_TESTING_DEVICE_SUBGROUP_H_
#define TANDEM_CORE_TESTING_DEVICE_SUBGROUP_H_

#include "core/backend/communicator_options.h"
#include "core/comm/communicator.h"
#include "core/testing/device_types.h"

namespace tandem {

// For Communicator::Subgroup of `group`: with a communicator for TestDevice()
// of the calling rank, if the backend is for such devices.
inline SubgroupOptions SubgroupForTestDevice(const Communicator& group) {
  SubgroupOptions options;
  if (group.HasStreams(TestDevice().type())) options.device = TestDevice();
  return options;
}

}  // namespace tandem

#endif  // TANDEM_CORE_TESTING_DEVICE_SUBGROUP_H_
