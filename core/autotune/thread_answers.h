// Autotuning answers that a thread keeps: nobody waits for another's look at
// them.

#ifndef TANDEM_CORE_AUTOTUNE_THREAD_ANSWERS_H_
#define TANDEM_CORE_AUTOTUNE_THREAD_ANSWERS_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "core/autotune/kernel_choices.h"

namespace tandem {

// The calling thread's answers to questions of this type, empty when
// KernelChoices::OfProcess() has begun to measure, or ended it, since the last
// call.
template <typename Question, typename Answer>
absl::flat_hash_map<Question, Answer>& ThreadAnswers() {
  struct Answers {
    uint64_t generation = 0;
    absl::flat_hash_map<Question, Answer> by_question;
  };
  static thread_local Answers answers;
  const uint64_t now = KernelChoices::OfProcess().generation();
  if (answers.generation != now) answers = {now, {}};
  return answers.by_question;
}

}  // namespace tandem

#endif  // TANDEM_CORE_AUTOTUNE_THREAD_ANSWERS_H_
