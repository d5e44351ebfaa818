#include "core/device/serial_operators.h"

#include <ATen/Parallel.h>

// OpenMP's, of the library that LibTorch brings. Its header comes with a
// compiler's own OpenMP alone.
extern "C" void omp_set_num_threads(int count);

namespace tandem {

// LibTorch gives a thread the process's number when it is first asked for it,
// so that this comes before.
SerialOperators::SerialOperators() : threads_before_(at::get_num_threads()) {
  omp_set_num_threads(1);
}

SerialOperators::~SerialOperators() { omp_set_num_threads(threads_before_); }

}  // namespace tandem
