// The trainer as a program: tools/train.cc.

#include "core/base/end_process.h"
#include "tools/train_main.h"

int main(int argc, char** argv) {
  tandem::EndProcess(tandem::TrainMain(argc, argv));
}
