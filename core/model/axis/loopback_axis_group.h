// Loopback axis group: one rank alone plans or measures layers that several
// will share (tensor parallelism).

#ifndef TANDEM_CORE_MODEL_AXIS_LOOPBACK_AXIS_GROUP_H_
#define TANDEM_CORE_MODEL_AXIS_LOOPBACK_AXIS_GROUP_H_

#include <cstdint>
#include <string>

#include "core/model/axis/axis_functions.h"

namespace tandem {

// A group of `degree` ranks, of which this is the first, that sends nothing:
// collectives give what they would if all other ranks had the same tensors. So
// shapes, memory and operators are those of one of them; communication takes
// no time. Works on tensors without values (core/meta/shapes.h), too.
AxisGroupPtr MakeLoopbackAxisGroup(const std::string& axis, int64_t degree);

}  // namespace tandem

#endif  // TANDEM_CORE_MODEL_AXIS_LOOPBACK_AXIS_GROUP_H_
