// Row parts: parameters that are rows of one weight. A model that divides a
// weight holds them; a checkpoint, and all who read one, know the weight alone.

#ifndef TANDEM_CORE_CHECKPOINT_ROW_PARTS_H_
#define TANDEM_CORE_CHECKPOINT_ROW_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/checkpoint/stored_tensors.h"
#include "core/checkpoint/tensor_stream.h"

namespace tandem {

// Rows [first, first + rows) of `all` that the weight has.
struct RowPart {
  std::string weight;  // its full name
  int64_t first = 0;
  int64_t rows = 0;
  int64_t all = 0;
};

// By a parameter's full name; what is not there is no part. The parts of one
// weight make it up.
using RowParts = std::map<std::string, RowPart>;

// A tensor by the name that it has as a parameter ("lm_head.0.weight"), as its
// optimizer state ("lm_head.0.weight.exp_avg"), or as that in a checkpoint.
struct PartName {
  const RowPart* part;  // the part that the tensor belongs to
  std::string whole;    // the weight's, of that kind
};
std::optional<PartName> FindPart(absl::string_view name, const RowParts& parts);

// A number that an optimizer keeps of a parameter (Adam's step) is the same of
// all parts, and the weight's.
bool IsDivided(const TensorInfo& info);

// What the weight has, of which `info` is a part's.
TensorInfo WholeTensorInfo(const TensorInfo& info, const PartName& name);

// The whole model's tensors, of which `tensors` has the parts.
std::vector<TensorInfo> WithoutParts(const std::vector<TensorInfo>& tensors,
                                     const RowParts& parts);

// What is stored of weights in place of each, for every part of it: its rows.
// A weight with another number of rows is given as it is, so that who loads it
// says so.
StoredTensors DivideRows(const StoredTensors& stored, const RowParts& parts);

// A sink that is given parts, and gives another one weights. What the other
// gets of a weight lies in the host's memory, a copy.
class JoinedRows : public TensorSink {
 public:
  // Both must outlive it.
  JoinedRows(const RowParts& parts, TensorSink& sink)
      : parts_(parts), sink_(sink) {}

  bool ComesBefore(const TensorInfo& a, const TensorInfo& b) const override;
  absl::Status Begin(std::vector<TensorInfo> infos) override;
  absl::Status Add(const at::Tensor& values) override;

 private:
  const RowParts& parts_;
  TensorSink& sink_;
  std::vector<size_t> left_;  // per tensor to come: of its weight, behind it
  size_t added_ = 0;
  std::vector<at::Tensor> joining_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_CHECKPOINT_ROW_PARTS_H_
