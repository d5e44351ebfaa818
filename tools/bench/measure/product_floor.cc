#include "tools/bench/measure/product_floor.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/ones.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status_macros.h"
#include "tools/bench/measure/cores.h"
#include "tools/bench/measure/median.h"

namespace tandem {
namespace {

using Stack = std::vector<c10::IValue>;

// Calls of one operator with operands of one kind.
struct Product {
  c10::OperatorName op;
  Stack operands;  // with memory of their own
  int64_t calls = 0;
};

struct Products {
  absl::Mutex mutex;
  std::map<std::pair<std::string, std::string>, Product> by_operands
      ABSL_GUARDED_BY(mutex);
};

Products& AllProducts() {
  static auto* const products = new Products;
  return *products;
}

// A product that runs on this thread.
struct Running : at::ObserverContext {
  Stack operands;
  bool calls_products = false;
  Running* outer = nullptr;
};

thread_local Running* innermost = nullptr;

bool IsStridedTensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() &&
         value.toTensor().layout() == at::kStrided;
}

std::string Describe(const Stack& operands) {
  std::ostringstream text;
  for (const c10::IValue& each : operands) {
    text << (text.tellp() > 0 ? ", " : "");
    if (IsStridedTensor(each)) {
      const at::Tensor& tensor = each.toTensor();
      text << tensor.scalar_type() << tensor.sizes() << '/' << tensor.strides();
    } else if (each.isTensor()) {
      text << "None";
    } else {
      text << each;
    }
  }
  return text.str();
}

c10::IValue OnesLike(const c10::IValue& value) {
  if (!IsStridedTensor(value)) return value;
  const at::Tensor& tensor = value.toTensor();
  int64_t length = 1;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    length += std::max<int64_t>(tensor.size(i) - 1, 0) * tensor.stride(i);
  }
  return at::ones({length}, tensor.options().requires_grad(false))
      .as_strided(tensor.sizes(), tensor.strides(), /*storage_offset=*/0);
}

void Add(const c10::OperatorName& op, const Stack& operands) {
  std::pair<std::string, std::string> key(c10::toString(op),
                                          Describe(operands));
  Products& products = AllProducts();
  absl::MutexLock lock(&products.mutex);
  const auto [at, is_new] =
      products.by_operands.try_emplace(std::move(key), Product{op, {}, 0});
  ++at->second.calls;
  if (!is_new) return;
  const at::NoGradGuard no_grad;
  for (const c10::IValue& each : operands) {
    at->second.operands.push_back(OnesLike(each));
  }
}

std::unique_ptr<at::ObserverContext> Begin(const at::RecordFunction& function) {
  // Autograd's own nodes ("ConvolutionBackward0") are recorded, too, but have
  // no operands.
  if (!function.operator_name().has_value() || !IsProduct(function.name())) {
    return nullptr;
  }
  auto running = std::make_unique<Running>();
  running->operands.assign(function.inputs().begin(), function.inputs().end());
  if (innermost != nullptr) innermost->calls_products = true;
  running->outer = std::exchange(innermost, running.get());
  return running;
}

void End(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context == nullptr) return;
  auto* running = static_cast<Running*>(context);
  innermost = running->outer;
  if (!running->calls_products) {
    Add(*function.operator_name(), running->operands);
  }
}

absl::Status Record(absl::FunctionRef<absl::Status()> step) {
  {
    absl::MutexLock lock(&AllProducts().mutex);
    AllProducts().by_operands.clear();
  }
  const auto handle =
      at::addGlobalCallback(at::RecordFunctionCallback(Begin, End)
                                .needsInputs(true)
                                .scopes({at::RecordScope::FUNCTION}));
  const auto remove = absl::MakeCleanup([&] { at::removeCallback(handle); });
  return step();
}

double ProductMs(const Product& product) {
  constexpr int kRepeats = 7;
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(
      product.op.name.c_str(), product.op.overload_name.c_str());
  const at::NoGradGuard no_grad;
  std::vector<double> times;
  for (int i = 0; i <= kRepeats; ++i) {
    Stack stack = product.operands;
    const Usage before = Usage::Now();
    op.callBoxed(&stack);
    // The first makes what is kept for the next ones.
    if (i > 0) times.push_back((Usage::Now() - before).wall_ms);
  }
  return Median(times);
}

}  // namespace

bool IsProduct(std::string_view op) {
  for (const char* part :
       {"onvolution", "mm", "_linear_", "attention", "matrix_product"}) {
    if (absl::StrContains(op, part)) return true;
  }
  return false;
}

absl::StatusOr<nlohmann::json> ProductFloor(
    absl::FunctionRef<absl::Status()> step) {
  TANDEM_RETURN_IF_ERROR(Record(step));
  Products& products = AllProducts();
  absl::MutexLock lock(&products.mutex);
  nlohmann::json list = nlohmann::json::array();
  double sum = 0;
  for (const auto& [key, product] : products.by_operands) {
    const double ms = ProductMs(product);
    const auto calls = static_cast<double>(product.calls);
    sum += ms * calls;
    list.push_back({{"name", key.first},
                    {"operands", key.second},
                    {"ms", ms},
                    {"calls", calls}});
  }
  products.by_operands.clear();
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) {
    return a.at("ms").template get<double>() *
               a.at("calls").template get<double>() >
           b.at("ms").template get<double>() *
               b.at("calls").template get<double>();
  });
  return nlohmann::json{{"ms", sum}, {"products", list}};
}

}  // namespace tandem
