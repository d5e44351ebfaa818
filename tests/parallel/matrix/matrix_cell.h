// Cells of the matrix of settings: one layout of a job each, among all that
// must train as one device does.

#ifndef TANDEM_TESTS_PARALLEL_MATRIX_MATRIX_CELL_H_
#define TANDEM_TESTS_PARALLEL_MATRIX_MATRIX_CELL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/schedule/schedule.h"
#include "tests/parallel/matrix/matrix_run.h"
#include "tests/parallel/matrix/pairwise.h"

namespace tandem {

struct MatrixCell {
  std::string model;  // resnet18_deferred: with DeferredBatchNorm
  std::string schedule;
  int replicas = 1;
  int stages = 1;  // into which a replica's model is cut
  // Where a replica's devices are: "devices" of one rank, "ranks" of one
  // device (over "gloo", too), or "both": 2 ranks of 2 devices; or "served":
  // "devices" of a worker, whose parameters a parameter server, a rank more,
  // updates without staleness.
  std::string place;
  int microbatches = 12;  // that a step accumulates, all replicas together
  // "never", "except_last", "always": a stage's microbatches; or "every_2"
  // layers.
  std::string checkpointing;
  std::string device;  // "cpu", "sim"
  // Into which DataParallel divides each microbatch, each on a device of its
  // own that has the whole model; 1: does not.
  int parts = 1;
  // "whole", or "short": the last batch of an epoch, 5 steps, is so short that
  // of several replicas one at least has no samples left (Join).
  std::string ends = "whole";
  std::string dtype = "fp32";  // or "bf16": of products and activations
  // Compared as bits with one device; else, within rounding, with the model in
  // one piece, which no strategy trains.
  bool reproducible = true;
  int chunks = 1;            // stages of each device
  int gradient_groups = 12;  // into which the microbatches are put

  // Each stands for `parts` devices, where microbatches are divided.
  int devices_of_replica() const { return stages / chunks; }
  int ranks_of_replica() const;
  // Without a server.
  int ranks() const { return replicas * ranks_of_replica(); }
  bool is_served() const { return place == "served"; }
  int servers() const { return is_served() ? 1 : 0; }
  int devices_per_rank() const {
    return devices_of_replica() * parts / ranks_of_replica();
  }
  // "single", "ddp", "pipeline", "hybrid": what it is a corner of; or
  // "parameter_server".
  std::string strategy() const;
};

std::string ToString(const MatrixCell& cell);

// The settings of reproducible cells, or of the others, and their values. What
// is no setting of theirs is as in MatrixCell. Reproducible cells have so many
// `stages` on each of the schedule's chunks, the others in all; where the
// schedule lets them, their 12 microbatches are in groups of 3, or of 4 on 3
// replicas; else each is a group.
const MatrixSettings& CellSettings(bool reproducible);
MatrixCell MakeCell(bool reproducible, const Combination& combination);

// A setting's value in a cell; "reproducible" is "yes" or "no".
std::string SettingOf(const MatrixCell& cell, const std::string& setting);
// All values that a setting has in any cell.
std::vector<std::string> KnownValues(const std::string& setting);

// Why this cell makes no sense; empty if it does.
std::string WhyNot(const MatrixCell& cell);
// All that make sense.
std::vector<Combination> SensibleCells(bool reproducible);

// What the cell is compared with: one device, one microbatch at a time, with
// this model, accumulation, parts, dtype and batches, which are all on the CPU.
MatrixCell ReferenceCell(const MatrixCell& cell);

absl::StatusOr<Schedule> CellSchedule(const MatrixCell& cell);

}  // namespace tandem

#endif  // TANDEM_TESTS_PARALLEL_MATRIX_MATRIX_CELL_H_
