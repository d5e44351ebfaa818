// Serial operators: a scope in which LibTorch's operators on the CPU use the
// calling thread alone.

#ifndef TANDEM_CORE_DEVICE_SERIAL_OPERATORS_H_
#define TANDEM_CORE_DEVICE_SERIAL_OPERATORS_H_

namespace tandem {

// While it lives, the calling thread's operators start no threads of their own
// (torch.set_num_threads(1) in a DataLoader's worker, but of this thread and
// scope): for one of several threads that have small work, whose teams would
// wait for each other. Other threads keep their numbers.
class SerialOperators {
 public:
  SerialOperators();
  ~SerialOperators();
  SerialOperators(const SerialOperators&) = delete;
  SerialOperators& operator=(const SerialOperators&) = delete;

 private:
  const int threads_before_;
};

}  // namespace tandem

#endif  // TANDEM_CORE_DEVICE_SERIAL_OPERATORS_H_
