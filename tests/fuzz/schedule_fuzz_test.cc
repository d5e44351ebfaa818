// Schedule files (parallel/schedule/choice.h), and the proof of what they say.

#include "glog/logging.h"
#include "parallel/schedule/choice.h"
#include "parallel/schedule/validator.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto schedule =
      tandem::ParseSchedule("input", tandem::InputText(data, size));
  if (!schedule.ok()) return 0;
  const auto again =
      tandem::ParseSchedule("input", tandem::ToString(*schedule));
  CHECK(again.ok()) << again.status();
  CHECK(again->actions == schedule->actions);
  const auto facts = tandem::ValidateSchedule(*schedule);
  const auto capacity = tandem::LeastChannelCapacity(*schedule);
  CHECK(capacity.ok() || !facts.ok()) << capacity.status();
  return 0;
}
