#include "parallel/schedule/v_schedule.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

// The actions of one device of ZB-V, counted chunk by chunk. Past the last
// microbatch nothing is written.
class VWriter {
 public:
  VWriter(int device, const ScheduleShape& shape)
      : stages_{device, 2 * shape.devices - 1 - device},
        microbatches_(shape.microbatches) {}

  void Forward(int chunk) {
    Write(ActionKind::kForward, chunk, forwards_[chunk]++);
  }
  void Input(int chunk) {
    Write(ActionKind::kBackwardInput, chunk, inputs_[chunk]++);
  }
  void Weight(int chunk) {
    Write(ActionKind::kBackwardWeight, chunk, weights_[chunk]++);
  }
  void Both(int chunk) {
    Input(chunk);
    Weight(chunk);
  }
  int forwards(int chunk) const { return forwards_[chunk]; }
  int inputs(int chunk) const { return inputs_[chunk]; }
  int weights(int chunk) const { return weights_[chunk]; }
  std::vector<Action> Take() { return std::move(actions_); }

 private:
  void Write(ActionKind kind, int chunk, int microbatch) {
    if (microbatch >= microbatches_) return;
    actions_.push_back({kind, stages_[chunk], microbatch});
  }

  const int stages_[2];
  const int microbatches_;
  int forwards_[2] = {0, 0};
  int inputs_[2] = {0, 0};
  int weights_[2] = {0, 0};
  std::vector<Action> actions_;
};

}  // namespace

std::vector<Action> ActionsOfV(int device, const ScheduleShape& shape) {
  VWriter write(device, shape);
  const int count = std::max(2 * shape.devices - 1, shape.microbatches);
  const int behind = shape.devices - device;
  for (int i = 0; i < 2 * behind - 1; ++i) write.Forward(0);
  for (int i = 0; i < device; ++i) {
    write.Forward(1);
    write.Forward(0);
  }
  for (int i = 0; i < behind; ++i) {
    write.Forward(1);
    write.Both(1);
  }
  while (write.forwards(1) < write.forwards(0) || write.forwards(0) < count) {
    if (write.forwards(0) < count) write.Forward(0);
    write.Both(0);
    write.Forward(1);
    write.Both(1);
  }
  for (int i = 0; i < device; ++i) {
    write.Input(0);
    write.Input(1);
  }
  for (int i = 0; i < behind; ++i) write.Both(0);
  for (int chunk : {1, 0}) {
    while (write.weights(chunk) < write.inputs(chunk)) write.Weight(chunk);
  }
  return write.Take();
}

}  // namespace tandem
