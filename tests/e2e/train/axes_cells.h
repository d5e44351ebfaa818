// Cells of the matrix of meshes: jobs on 2, 4, 6 and 8 devices, each of which
// is to train what one device trains. For tests.

#ifndef TANDEM_TESTS_E2E_TRAIN_AXES_CELLS_H_
#define TANDEM_TESTS_E2E_TRAIN_AXES_CELLS_H_

#include <string>
#include <vector>

#include "tests/parallel/matrix/pairwise.h"

namespace tandem {

// Ranks along each axis.
struct AxisDegrees {
  int data = 1;
  int shard = 1;
  int pipe = 1;
  int tensor = 1;

  int replicas() const { return data * shard; }
  int ranks() const { return replicas() * pipe * tensor; }
};

// The settings but the mesh are numbers of values: see axes_cells.cc.
struct AxesCell {
  AxisDegrees mesh;
  int level = 0;  // of --shard
  int model = 0;
  int heads = 0;
  int batch = 0;
  int backend = 0;
  int technique = 0;
};

// The job's model and data, as flags; those of its ranks; those of its backend.
std::string JobOf(const AxesCell& cell);
std::string MeshOf(const AxesCell& cell);
std::string BackendOf(const AxesCell& cell);
// A test's.
std::string NameOf(const AxesCell& cell);

// The flags of a backend by its name, as jobs are typed.
const std::vector<std::string>& AxesBackends();
std::string BackendFlags(const std::string& backend);

// All meshes of 2, 4, 6 and 8 ranks, and all cells, those that make no sense
// as well.
const std::vector<AxisDegrees>& AxesMeshes();
std::vector<AxesCell> AllAxesCells();
// Why the trainer refuses a cell, or why it is not one device's; empty: it
// makes sense.
std::string WhyNot(const AxesCell& cell);
std::vector<AxesCell> SensibleAxesCells();

// What the cover's pairs are of: the number of ranks, which axes there are, and
// all other settings. How many ranks an axis has is no setting of it.
Combination SettingsOf(const AxesCell& cell);
// Few cells, in which every two values of two such settings meet.
std::vector<AxesCell> CoverOf(const std::vector<AxesCell>& sensible);

// The product of meshes, levels, heads, batches and backends. Models and
// techniques take turns.
std::vector<AxesCell> AxesProduct();

}  // namespace tandem

#endif  // TANDEM_TESTS_E2E_TRAIN_AXES_CELLS_H_
