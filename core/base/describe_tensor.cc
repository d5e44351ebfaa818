#include "core/base/describe_tensor.h"

#include <sstream>

namespace tandem {

std::string DescribeTensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return "nothing";
  std::ostringstream out;
  out << tensor.scalar_type() << " " << tensor.sizes();
  return out.str();
}

}  // namespace tandem
