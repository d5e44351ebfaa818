#include "tests/parallel/ddp_parity_cases.h"

#include <ATen/Parallel.h>

#include <cstring>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "core/safetensors.h"
#include "core/status_macros.h"
#include "core/testing/thread_ranks.h"
#include "gtest/gtest.h"
#include "parallel/gradient_clipping.h"
#include "tests/parallel/parity_mlp.h"
#include "tests/parallel/python_optimizer.h"

namespace tandem {
namespace {

constexpr double kLearningRate = 0.1;

// On rank 1, nowhere, everywhere, on rank 0, nowhere.
bool BranchUsed(int step, int rank) {
  return (step == 0 && rank == 1) || step == 2 || (step == 3 && rank == 0);
}

at::Tensor Stored(const std::string& name) {
  auto reader = SafetensorsReader::Open(
      "tests/parallel/testdata/ddp_parity_mlp.safetensors");
  EXPECT_TRUE(reader.ok()) << reader.status();
  const SafetensorsEntry* entry = (*reader)->Find(name);
  EXPECT_NE(entry, nullptr) << name;
  return *(*reader)->Read(*entry);
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == b.numel() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(),
                     a.numel() * a.element_size()) == 0;
}

// Whether one network alone has Python's first gradients: else the machine's
// kernels differ, and nothing that follows can have Python's bits.
bool KernelsGivePythonsBits() {
  at::set_num_threads(1);
  ParityMlp model;
  const ParityBatch batch = MakeParityBatch(0, 0, 0);
  ParityLoss(model.forward(batch.inputs), batch).backward();
  return SameBits(FlattenGradients(model), Stored("alone"));
}

void ExpectEqual(const at::Tensor& actual, const at::Tensor& expected,
                 double tolerance, const std::string& what) {
  if (tolerance == 0) {
    EXPECT_TRUE(SameBits(actual, expected))
        << what << ": " << actual.ne(expected).sum().item<int64_t>()
        << " elements differ, by up to "
        << actual.sub(expected).abs().max().item<float>();
    return;
  }
  ASSERT_EQ(actual.numel(), expected.numel()) << what;
  EXPECT_TRUE(actual.isnan().equal(expected.isnan())) << what;
  const at::Tensor errors = actual.sub(expected).nan_to_num(0).abs();
  EXPECT_LE(errors.max().item<float>(), tolerance) << what;
}

// A rank at work.
class Job {
 public:
  Job(const ParityCase& job, Communicator& world) : job_(job), world_(world) {}

  absl::StatusOr<ParityResult> Run();

 private:
  absl::Status Prepare();
  absl::Status Microbatch(int step, int microbatch, int count);
  absl::Status Train(int step);
  void Update();

  const ParityCase& job_;
  Communicator& world_;
  std::shared_ptr<ParityMlp> model_;
  std::unique_ptr<DistributedDataParallel<std::shared_ptr<ParityMlp>>> ddp_;
  std::unique_ptr<PythonOptimizer> pythons_;
  std::unique_ptr<Optimizer> tandems_;
  ParityResult result_;
};

absl::Status Job::Prepare() {
  // Every rank begins elsewhere: the wrapper brings them together.
  const std::string suffix =
      world_.rank() == 0 ? "" : absl::StrCat(".", world_.rank());
  model_ = std::make_shared<ParityMlp>(suffix);
  for (auto& parameter : model_->named_parameters()) {
    parameter.value().requires_grad_(
        !absl::c_linear_search(job_.frozen, parameter.key()));
  }
  TANDEM_ASSIGN_OR_RETURN(
      ddp_, MakeDistributedDataParallel(model_, world_, job_.options));
  if (job_.hook) {
    TANDEM_RETURN_IF_ERROR(ddp_->register_comm_hook(job_.hook()));
  }
  pythons_ =
      std::make_unique<PythonOptimizer>(job_.optimizer, model_->parameters());
  TANDEM_ASSIGN_OR_RETURN(tandems_,
                          MakeOptimizer(job_.optimizer, ddp_->flat_buffers()));
  return absl::OkStatus();
}

absl::Status Job::Microbatch(int step, int microbatch, int count) {
  const bool last = microbatch + 1 == count;
  const bool use_branch = !job_.unused || BranchUsed(step, world_.rank());
  const ParityBatch batch = MakeParityBatch(step, world_.rank(), microbatch);
  const auto forward = [&]() -> absl::StatusOr<at::Tensor> {
    TANDEM_ASSIGN_OR_RETURN(
        const at::Tensor outputs,
        ddp_->Forward(batch.inputs, use_branch, job_.times));
    return ParityLoss(outputs, batch).div(count);
  };
  at::Tensor loss;
  if (last || !job_.no_sync_around_forward) {
    TANDEM_ASSIGN_OR_RETURN(loss, forward());
    if (last) return ddp_->Backward(loss);
  }
  const auto guard = ddp_->no_sync();
  if (!loss.defined()) {
    TANDEM_ASSIGN_OR_RETURN(loss, forward());
  }
  return ddp_->Backward(loss);
}

absl::Status Job::Train(int step) {
  const int count =
      step == 0 && job_.one_microbatch_first ? 1 : job_.microbatches;
  for (int microbatch = 0; microbatch < count; ++microbatch) {
    TANDEM_RETURN_IF_ERROR(Microbatch(step, microbatch, count));
  }
  if (step == 0) {
    result_.first_gradients = FlattenGradients(*model_);
  }
  Update();
  return absl::OkStatus();
}

void Job::Update() {
  if (job_.clip_norm > 0) {
    ClipGradientNorm(ddp_->flat_buffers(), job_.clip_norm);
  }
  if (job_.clip_value > 0) {
    ClipGradientValue(ddp_->flat_buffers(), job_.clip_value);
  }
  if (job_.pythons_optimizer) {
    pythons_->Step(kLearningRate);
  } else {
    tandems_->Step(kLearningRate);
  }
  ddp_->ZeroGrad();
}

absl::StatusOr<ParityResult> Job::Run() {
  at::set_num_threads(1);
  TANDEM_RETURN_IF_ERROR(Prepare());
  for (int step = 0; step < job_.steps; ++step) {
    TANDEM_RETURN_IF_ERROR(Train(step));
  }
  result_.final = FlattenParameters(*model_);
  return result_;
}

}  // namespace

ParityCase::ParityCase(std::string name) : name(std::move(name)) {
  SgdOptions sgd;
  sgd.momentum = 0.9;
  sgd.weight_decay = 0.01;
  optimizer = sgd;
}

OptimizerOptions ParityAdamW() { return AdamWOptions{0.9, 0.99, 1e-3, 0.1}; }

absl::StatusOr<ParityResult> RunParityCase(const ParityCase& job,
                                           Communicator& world) {
  return Job(job, world).Run();
}

void ExpectPythonsResult(const ParityCase& job, int ranks,
                         const std::string& backend, double tolerance) {
  if (tolerance == 0 && !KernelsGivePythonsBits()) tolerance = 1e-6;
  testing::Test::RecordProperty("bit_for_bit", tolerance == 0 ? "yes" : "no");
  CommunicatorOptions options;
  options.backend = backend;
  const auto body = [&](Communicator& world) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(const ParityResult result,
                            RunParityCase(job, world));
    const std::string rank = job.options.parameters_to_ignore.empty()
                                 ? ""
                                 : absl::StrCat("/", world.rank());
    const std::string key = absl::StrCat(job.name, "/", ranks, "/");
    const std::string where =
        absl::StrCat(key, backend, " rank ", world.rank());
    ExpectEqual(result.first_gradients,
                Stored(absl::StrCat(key, "first_gradients", rank)), tolerance,
                where + ", first gradients");
    ExpectEqual(result.final, Stored(absl::StrCat(key, "final", rank)),
                tolerance, where + ", final weights");
    return absl::OkStatus();
  };
  const absl::Status status = RunThreadRanks(ranks, body, options);
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace tandem
