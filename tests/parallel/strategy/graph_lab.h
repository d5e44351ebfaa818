// Graph laboratory: what tests of steps in device graphs ask of any layout.

#ifndef TANDEM_TESTS_PARALLEL_STRATEGY_GRAPH_LAB_H_
#define TANDEM_TESTS_PARALLEL_STRATEGY_GRAPH_LAB_H_

#include "tests/parallel/strategy/strategy_lab.h"

namespace tandem {

// Expects that steps with AdamW, captured and replayed, wait for no simulated
// device on the host, and give all their scores.
void ExpectNoHostWaitsInGraphs(const LabLayout& layout);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_STRATEGY_GRAPH_LAB_H_
