// Opcodes of PyTorch's pickles, for tests: texts that follow each other.

#ifndef TANDEM_TESTS_CORE_PYTORCH_FILE_OPCODES_H_
#define TANDEM_TESTS_CORE_PYTORCH_FILE_OPCODES_H_

#include <string>

#include "absl/strings/str_cat.h"

namespace tandem::opcodes {

constexpr char kTrue[] = "\x88";

inline std::string Text(const std::string& text) {
  return absl::StrCat("X", std::string(1, static_cast<char>(text.size())),
                      std::string(3, '\0'), text);
}
inline std::string Number(char number) { return std::string("K") + number; }
inline std::string Tuple(const std::string& items) {
  return absl::StrCat("(", items, "t");
}
inline std::string Call(const std::string& module, const std::string& name,
                        const std::string& arguments) {
  return absl::StrCat("c", module, "\n", name, "\n", Tuple(arguments), "R");
}
inline std::string Storage(const std::string& of_class, char elements) {
  return absl::StrCat(
      Tuple(absl::StrCat(Text("storage"), "c", of_class, "\n", Text("0"),
                         Text("cpu"), Number(elements))),
      "Q");
}
inline std::string Tensor(const std::string& storage,
                          const std::string& sizes = Tuple(Number(2)),
                          const std::string& strides = Tuple(Number(1)),
                          const std::string& offset = Number(0),
                          const std::string& metadata = "") {
  return Call("torch._utils", "_rebuild_tensor_v2",
              absl::StrCat(storage, offset, sizes, strides, "\x89}", metadata));
}
inline std::string TensorOfDtype(const std::string& storage,
                                 const std::string& dtype,
                                 const std::string& metadata = "") {
  return Call(
      "torch._utils", "_rebuild_tensor_v3",
      absl::StrCat(storage, Number(0), Tuple(Number(2)), Tuple(Number(1)),
                   "\x89}ctorch\n", dtype, "\n", metadata));
}
inline std::string Dict(const std::string& items) {
  return absl::StrCat("}(", items, "u");
}

inline const std::string& Floats() {
  static const auto& storage =
      *new std::string(Storage("torch\nFloatStorage", 2));
  return storage;
}

}  // namespace tandem::opcodes

#endif  // TANDEM_TESTS_CORE_PYTORCH_FILE_OPCODES_H_
