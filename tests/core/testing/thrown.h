// Text of what is thrown, for tests.

#ifndef TANDEM_TESTS_CORE_TESTING_THROWN_H_
#define TANDEM_TESTS_CORE_TESTING_THROWN_H_

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace tandem {

// What `work` threw, without a backtrace; "" if nothing.
template <typename F>
std::string Thrown(F&& work) {
  try {
    work();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace tandem

#endif  // TANDEM_TESTS_CORE_TESTING_THROWN_H_
