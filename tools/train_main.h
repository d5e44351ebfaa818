// Trainer's main, for programs with models and data sets of their own:
// //tools:train is nothing else.

#ifndef TANDEM_TOOLS_TRAIN_MAIN_H_
#define TANDEM_TOOLS_TRAIN_MAIN_H_

#include "absl/status/status.h"

namespace tandem {

// Trains as the flags of docs/training.md say, which come with this library, on
// one rank or on many; returns what main returns (core/run/run_ranks.h). Ranks
// are further processes of this program. Once in a process, and first in main,
// behind what registers: on a busy machine it starts the program anew
// (WaitPassivelyWhereBusy, core/program/openmp_waits.h).
//
// --model and --dataset know what RegisterModel (models/registry.h) and
// RegisterDataset (datasets/registry.h) were told before; --help and errors
// list it. `registered`: what those returned; an error is reported as one of
// the command line, and nothing is trained.
//
//   int main(int argc, char** argv) {
//     return tandem::TrainMain(argc, argv,
//                              tandem::RegisterModel("my_net", MakeMyNet));
//   }
int TrainMain(int argc, char** argv,
              const absl::Status& registered = absl::OkStatus());

}  // namespace tandem

#endif  // TANDEM_TOOLS_TRAIN_MAIN_H_
