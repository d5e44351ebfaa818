#include "core/base/end_process.h"

#include <glog/logging.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace tandem {

void EndProcess(int exit_code) {
  google::FlushLogFiles(google::GLOG_INFO);
  std::cout.flush();
  std::fflush(nullptr);
#ifdef __SANITIZE_ADDRESS__
  __lsan_do_leak_check();
#endif
  _exit(exit_code);
}

}  // namespace tandem
