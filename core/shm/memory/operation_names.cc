#include "core/shm/memory/operation_names.h"

#include <c10/core/ScalarType.h>

#include "absl/strings/str_cat.h"
#include "core/vector/kernels.h"

namespace tandem {
namespace {

const char* OperationName(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
      return "sum";
    case ReduceKind::kProduct:
      return "product";
    case ReduceKind::kMin:
      return "minimum";
    case ReduceKind::kMax:
      return "maximum";
    default:
      return "bitwise operation";
  }
}

std::string TypeText(const ShmNote& note) {
  if (note.dtype < 0 ||
      note.dtype >= static_cast<int>(c10::ScalarType::NumOptions)) {
    return "";
  }
  return absl::StrCat(" of ",
                      c10::toString(static_cast<c10::ScalarType>(note.dtype)));
}

}  // namespace

const char* OperationName(ShmOp operation) {
  switch (operation) {
    case ShmOp::kBarrier:
      return "barrier";
    case ShmOp::kAllReduce:
      return "all-reduce";
    case ShmOp::kReduce:
      return "reduce";
    case ShmOp::kReduceScatter:
      return "reduce-scatter";
    case ShmOp::kAllGather:
      return "all-gather";
    case ShmOp::kGather:
      return "gather";
    case ShmOp::kScatter:
      return "scatter";
    case ShmOp::kBroadcast:
      return "broadcast";
    case ShmOp::kAllToAll:
      return "all-to-all";
    case ShmOp::kMonitoredBarrier:
      return "monitored barrier";
    default:
      return "an unknown operation";
  }
}

std::string DescribeNote(const ShmNote& note) {
  const auto operation = static_cast<ShmOp>(note.operation);
  const std::string name = OperationName(operation);
  const std::string size =
      absl::StrCat(name, " of ", note.bytes, " bytes", TypeText(note));
  switch (operation) {
    case ShmOp::kAllReduce:
    case ShmOp::kReduceScatter:
    case ShmOp::kReduce:
      return absl::StrCat(size, " (",
                          OperationName(static_cast<ReduceKind>(note.variant)),
                          ")");
    case ShmOp::kBroadcast:
      return absl::StrCat(
          size, ", root ", note.root,
          note.variant > 0 ? absl::StrCat(", tensor ", note.variant) : "");
    case ShmOp::kGather:
    case ShmOp::kScatter:
      return absl::StrCat(size, ", root ", note.root);
    case ShmOp::kAllGather:
      return size;
    case ShmOp::kAllToAll:
      return absl::StrCat(name, TypeText(note));
    default:
      return name;
  }
}

}  // namespace tandem
