#include "parallel/ddp/step_times.h"

namespace tandem {

void StepTimes::EndStep(int64_t step, const ReducerMoments& reducer) {
  steps_.push_back({step, began_, ended_, reducer});
}

void StepTimes::Note(bool waits, DdpLoggingData* data) {
  while (!steps_.empty() && (waits || HaveCome(steps_.front().reducer))) {
    const Step& step = steps_.front();
    data->iteration = step.number;
    AddStepTimes(step.forward_ended.time() - step.forward_began.time(),
                 TimesOf(step.reducer), data);
    steps_.pop_front();
  }
}

}  // namespace tandem
