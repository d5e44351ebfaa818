// Trains a model, on one rank or on many. docs/training.md, or --help.

#include "core/base/end_process.h"
#include "core/program/openmp_waits.h"
#include "tools/train_main.h"

int main(int argc, char** argv) {
  tandem::WaitPassivelyWhereBusy(argc, argv);
  tandem::EndProcess(tandem::TrainMain(argc, argv));
}
