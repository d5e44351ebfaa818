#include "models/functions/image_kernels.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/autotune/kernel_choices.h"
#include "core/autotune/thread_answers.h"
#include "core/device/host_memory.h"

namespace tandem {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr at::MemoryFormat kContiguous = at::MemoryFormat::Contiguous;
constexpr at::MemoryFormat kChannelsLast = at::MemoryFormat::ChannelsLast;

// The operator's name and numbers, x's sizes, its dtype and format, threads.
using Question =
    std::tuple<std::string, std::vector<int64_t>, std::vector<int64_t>,
               at::ScalarType, at::MemoryFormat, int>;

std::string QuestionText(const Question& question) {
  const auto& [name, numbers, sizes, dtype, format, threads] = question;
  return absl::StrCat(
      name, " ", absl::StrJoin(numbers, " "), " of ",
      absl::StrJoin(sizes, " x "), " ", c10::toString(dtype),
      format == kChannelsLast ? " channels_last on " : " contiguous on ",
      threads, threads == 1 ? " thread" : " threads");
}

bool HasFormat(const at::Tensor& x, at::MemoryFormat format) {
  return x.suggest_memory_format() == format;
}

// A copy rather than Tensor::contiguous: a single channel's images have both
// formats, and it is the strides by which LibTorch chooses kernels.
at::Tensor Reformatted(const at::Tensor& x, at::MemoryFormat format) {
  return HasFormat(x, format) ? x : x.clone(format);
}

class FormatFunction : public torch::autograd::Function<FormatFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            at::MemoryFormat format) {
    context->saved_data["format"] =
        static_cast<int64_t>(x.suggest_memory_format());
    return Reformatted(x, format);
  }

  static variable_list backward(AutogradContext* context,
                                const variable_list& gradients) {
    if (!gradients[0].defined()) return {at::Tensor(), at::Tensor()};
    const auto format =
        static_cast<at::MemoryFormat>(context->saved_data["format"].toInt());
    return {Reformatted(gradients[0], format), at::Tensor()};
  }
};

bool MayChoose(const at::Tensor& x) {
  return KernelChoices::OfProcess().measures() && x.dim() == 4 &&
         RunsCpuKernels(x.device().type()) && x.layout() == at::kStrided &&
         x.is_non_overlapping_and_dense() && x.numel() > 0;
}

size_t Measured(const Question& question, absl::Span<const ImageKernel> kernels,
                size_t fixed) {
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto& [name, numbers, sizes, dtype, format, threads] = question;
  const at::Tensor images =
      at::ones(sizes, at::TensorOptions(at::kCPU).dtype(dtype)).clone(format);
  std::vector<Kernel> timed;
  for (const ImageKernel& kernel : kernels) {
    timed.push_back({kernel.name, [&] { kernel.run(images); }});
    timed.back().run();  // what it has to ask itself is not asked while timed
  }
  return KernelChoices::OfProcess().Pick(QuestionText(question), timed, fixed);
}

}  // namespace

size_t FasterKernel(const at::Tensor& x, at::ScalarType dtype,
                    const ImageOperator& image_operator,
                    absl::Span<const ImageKernel> kernels, size_t fixed) {
  if (!MayChoose(x)) return fixed;
  const Question question = {image_operator.name,       image_operator.numbers,
                             x.sizes().vec(),           dtype,
                             x.suggest_memory_format(), at::get_num_threads()};
  const auto& answers = ThreadAnswers<Question, size_t>();
  const auto known = answers.find(question);
  if (known != answers.end()) return known->second;
  // An imagined device's operators take no time.
  if (HostView(x).is_meta()) return fixed;
  const size_t answer = Measured(question, kernels, fixed);
  ThreadAnswers<Question, size_t>()[question] = answer;
  return answer;
}

at::MemoryFormat FasterFormat(const at::Tensor& x, at::ScalarType dtype,
                              const ImageOperator& image_operator,
                              const ImageFunction& run) {
  const auto run_in = [&](const at::Tensor& images, at::MemoryFormat format) {
    const at::Tensor gradient = run(Reformatted(images, format));
    return gradient.defined()
               ? Reformatted(gradient, images.suggest_memory_format())
               : gradient;
  };
  const std::vector<ImageKernel> kernels = {
      {"contiguous",
       [&](const at::Tensor& images) { return run_in(images, kContiguous); }},
      {"channels_last", [&](const at::Tensor& images) {
         return run_in(images, kChannelsLast);
       }}};
  const at::MemoryFormat own = x.suggest_memory_format();
  const size_t found = FasterKernel(x, dtype, image_operator, kernels,
                                    /*fixed=*/own == kChannelsLast ? 1 : 0);
  return found == 1 ? kChannelsLast : kContiguous;
}

at::Tensor InFormat(const at::Tensor& x, at::MemoryFormat format) {
  return x.dim() != 4 || HasFormat(x, format)
             ? x
             : FormatFunction::apply(x, format);
}

}  // namespace tandem
