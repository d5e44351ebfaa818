// Trains a model, on one rank or on many. docs/training.md, or --help.

#include "tools/train_main.h"

int main(int argc, char** argv) { return tandem::TrainMain(argc, argv); }
