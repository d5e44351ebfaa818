// Draw count: how often layers of the calling thread drew random numbers that
// are a function of the step.

#ifndef TANDEM_CORE_RANDOM_DRAW_COUNT_H_
#define TANDEM_CORE_RANDOM_DRAW_COUNT_H_

#include <cstdint>

namespace tandem {

// What draws so counts it: a graph (core/graph) would repeat the numbers of the
// step that was captured.
void CountDraw();
// By the calling thread so far.
int64_t CountedDraws();

}  // namespace tandem

#endif  // TANDEM_CORE_RANDOM_DRAW_COUNT_H_
