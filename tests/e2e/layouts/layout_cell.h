// One layout of a job, among all that must give the same bits.

#ifndef TANDEM_TESTS_E2E_LAYOUTS_LAYOUT_CELL_H_
#define TANDEM_TESTS_E2E_LAYOUTS_LAYOUT_CELL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/schedule/schedule.h"
#include "tests/parallel/matrix/matrix_run.h"
#include "tests/parallel/matrix/pairwise.h"

namespace tandem {

struct LayoutCell {
  std::string model;  // "mlp_dropout", "resnet18", "gpt_tiny_tied"
  std::string schedule;
  int replicas = 1;
  int stages = 1;  // of a replica, each on a device of its own
  // Where a replica's stages are: "devices" of one rank, "ranks" of one device,
  // or "both": 2 ranks of 2 devices; or "served": "devices" of a worker, whose
  // parameters a parameter server, a rank more, updates without staleness.
  std::string place;
  int microbatches = 12;  // that a step accumulates, all replicas together
  // Of stages: "never", "except_last", "always"; or "every_2" layers.
  std::string checkpointing;
  std::string device;  // "cpu", "sim"
  // Into which DataParallel divides each microbatch, each on a device of its
  // own that has the whole model; 1: does not.
  int parts = 1;
  int gradient_groups = 12;  // into which the microbatches are put
  // "whole", or "short": the last batch of an epoch, 5 steps, is so short that
  // of several replicas one at least has no samples left (Join).
  std::string ends = "whole";
  std::string dtype = "fp32";  // or "bf16": of products and activations

  int ranks_of_replica() const;
  // Without a server.
  int ranks() const { return replicas * ranks_of_replica(); }
  bool is_served() const { return place == "served"; }
  int servers() const { return is_served() ? 1 : 0; }
  int devices_per_rank() const { return stages * parts / ranks_of_replica(); }
  // "single", "ddp", "pipeline", "hybrid": what it is a corner of; or
  // "parameter_server".
  std::string strategy() const;
};

std::string ToString(const LayoutCell& cell);

// The settings' values, in the order of LayoutCell's members. Where the
// schedule lets them, 12 microbatches are in groups of 3, or of 4 on 3
// replicas; else each is a group.
const MatrixValues& LayoutSettings();
LayoutCell LayoutOf(const Combination& combination);

// Why this cell makes no sense; empty if it does.
std::string WhyNot(const LayoutCell& cell);
// All that make sense.
std::vector<Combination> SensibleLayouts();

// One device, one microbatch at a time, with this model, accumulation, parts,
// dtype and batches, which are all on the CPU: what the cell is compared with.
LayoutCell OneDevice(const LayoutCell& cell);

// Schedules that loop have two parts of the model on each device.
absl::StatusOr<Schedule> ScheduleOf(const LayoutCell& cell);

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_LAYOUTS_LAYOUT_CELL_H_
