// Readiness of gradients: which of a backward are complete.

#ifndef TANDEM_PARALLEL_DDP_READY_MARKS_H_
#define TANDEM_PARALLEL_DDP_READY_MARKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Counts, for each parameter, how often its gradient was marked ready in one
// backward, and says whether that is as it should be. Parameters are known by
// their position in a list.
//
// Once is as it should be, unless the graph is static: then as often as in the
// first backward. Not thread-safe.
class ReadyMarks {
 public:
  // `names` by position; an empty one stands for a parameter that is not
  // trained, which must not be marked.
  ReadyMarks(std::vector<std::string> names, bool static_graph);

  // A backward begins.
  void Reset();
  // Whether this mark makes the parameter ready: with a static graph, in the
  // first backward, none does. InvalidArgument for one mark too many.
  absl::StatusOr<bool> Mark(int64_t position);
  // A static graph's first backward is over: later ones must equal it.
  void Learn();

  // The parameter is not expected any more: from now on a mark is an error.
  void Retire(int64_t position) { expected_[position] = 0; }

  bool learning() const { return static_graph_ && !learned_; }
  // Expected in this backward and never marked, in order.
  std::vector<int64_t> Unmarked() const;
  // Parameters in the order in which they were marked (for the last time) in
  // this backward; the unmarked ones come last, in reverse.
  std::vector<int64_t> Order() const;
  bool expects(int64_t position) const { return expected_[position] > 0; }

  // InvalidArgument, with names: some parameters were not marked.
  absl::Status CheckAllMarked() const;
  // InvalidArgument, with names: others were marked than in the first backward.
  absl::Status CheckUnchanged() const;

 private:
  std::string Names(const std::vector<int64_t>& positions) const;

  std::vector<std::string> names_;
  bool static_graph_;
  bool learned_ = false;
  std::vector<int> marks_;
  std::vector<int> expected_;
  std::vector<int64_t> last_mark_;  // when, by position; 0: not
  int64_t clock_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DDP_READY_MARKS_H_
