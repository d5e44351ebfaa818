// Flags stand apart from whatever includes glog, whose own flags have some of
// the same names.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/files/user_path.h"
#include "tools/trainer/settings/options.h"

ABSL_FLAG(std::string, model, "cnn",
          "Network to train: cnn, mlp_small, mlp_wide, mlp_deep, mlp_dropout, "
          "unet_tiny, resnet18, resnet34, resnet50, gpt_tiny, gpt_tiny_tied, "
          "toy, toy_mp.");
ABSL_FLAG(std::string, dataset, "fashion_mnist",
          "Data to train on: fashion_mnist, mnist, synthetic (images), "
          "synthetic_tokens.");
ABSL_FLAG(std::string, data_dir, "",
          "Folder of the data set's files. Empty: the copy of Fashion-MNIST "
          "that comes with the program.");
ABSL_FLAG(std::string, synthetic_shape, "",
          "Shape of one sample of a synthetic data set: 3,224,224 for images "
          "(the default), the context length for tokens (128).");
ABSL_FLAG(int64_t, synthetic_classes, 10,
          "Number of classes of --dataset=synthetic.");
ABSL_FLAG(int64_t, synthetic_samples, 0,
          "Number of training samples of a synthetic data set (0: 10240 images "
          "or 8192 token sequences); an eighth as many to test on.");
ABSL_FLAG(int64_t, epochs, 1, "Passes over the training set.");
ABSL_FLAG(int64_t, max_steps, 0,
          "Stop after this many steps in all, resumed ones included; 0: after "
          "the epochs. Where it ends the job, a cosine schedule ends too.");
ABSL_FLAG(int64_t, batch_size, 64,
          "Samples a step, over all ranks together: must divide by the number "
          "of replicas.");
ABSL_FLAG(bool, drop_last, true,
          "Leave out the samples at an epoch's end that make no whole batch; "
          "--nodrop_last trains on them, in a smaller step.");
ABSL_FLAG(double, z_loss, 0,
          "Adds this times the mean of log(Z)^2 to the loss, Z the sum of exp "
          "over a prediction's logits, which keeps them from drifting (1e-4 is "
          "usual); 0: off.");
ABSL_FLAG(bool, eval_only, false,
          "Evaluate the checkpoint that --resume names on the test set, and "
          "stop.");
ABSL_FLAG(std::string, optimizer, "sgd", "sgd, adam or adamw.");
ABSL_FLAG(double, learning_rate, 0,
          "Peak learning rate; 0: the optimizer's usual one (sgd 0.05, adam "
          "and adamw 0.001).");
ABSL_FLAG(double, momentum, 0.9, "Momentum of sgd.");
ABSL_FLAG(bool, nesterov, false, "Nesterov's momentum, for sgd.");
ABSL_FLAG(bool, amsgrad, false,
          "AMSGrad, for adam and adamw: the greatest mean square so far.");
ABSL_FLAG(double, weight_decay, 0,
          "Weight decay: added to the gradient by sgd and adam, taken off the "
          "weight by adamw.");
ABSL_FLAG(std::string, no_weight_decay_on, "",
          "Parameters whose names this regular expression matches, in part at "
          "least, have no --weight_decay: 'bias$|^bn'.");
ABSL_FLAG(std::string, lr_schedule, "constant",
          "Learning rate after the warm-up: constant, step (times --lr_gamma "
          "every --lr_step_size steps) or cosine (down to 0 at the last "
          "step).");
ABSL_FLAG(int64_t, lr_warmup_steps, 0,
          "Steps over which the learning rate rises in a line to its peak.");
ABSL_FLAG(int64_t, lr_step_size, 0,
          "Steps between two decays of --lr_schedule=step.");
ABSL_FLAG(double, lr_gamma, 0.1, "Factor of one decay of --lr_schedule=step.");
ABSL_FLAG(double, clip_grad_norm, 0,
          "Scale gradients down to this norm where theirs is greater; 0: "
          "off.");
ABSL_FLAG(double, clip_grad_norm_type, 2,
          "Order of --clip_grad_norm's norm: 2, 1, inf or another number "
          "greater than 0.");
ABSL_FLAG(bool, error_if_nonfinite, false,
          "End the job when the norm of --clip_grad_norm is not finite.");
ABSL_FLAG(double, clip_grad_value, 0,
          "Clamp every element of the gradients to this magnitude, before "
          "--clip_grad_norm; 0: off.");
ABSL_FLAG(uint64_t, seed, 0,
          "Seed of initial values and of the order of samples.");
ABSL_FLAG(int64_t, intra_op_threads, 0,
          "Threads of one rank's operators, 1024 at most; 0: OMP_NUM_THREADS "
          "where it is set (with the same limit), else this machine's cores "
          "shared by its ranks.");
ABSL_FLAG(int64_t, workers, 1,
          "Threads of one rank that prepare batches; 0: none, each batch is "
          "prepared when it is needed.");
ABSL_FLAG(
    std::string, strategy, "auto",
    "How ranks and devices share the work: single, ddp (a replica a rank), "
    "model_parallel (the parts of a model, one after the other), pipeline "
    "(all of them at once), hybrid (any number of pipelines side by side), or "
    "auto (follows "
    "from the numbers of ranks and devices and from --pipe).");
ABSL_FLAG(std::string, backend, "shm",
          "What carries collectives between ranks on the CPU: shm (memory that "
          "ranks of one host share, Gloo between hosts) or gloo.");
ABSL_FLAG(std::string, interface, "",
          "Network interface or address for traffic between ranks. Empty: "
          "loopback when all ranks are on this host, else the one that reaches "
          "the master.");
ABSL_FLAG(double, timeout, 1800,
          "Seconds that a rank waits for the others before it gives up and "
          "says who is missing.");
ABSL_FLAG(double, straggler_warning, 0,
          "Seconds that a rank waits in a collective before a warning names "
          "the ranks that are late; 0: never.");
ABSL_FLAG(int64_t, log_every, 25, "Steps between two lines of progress.");
ABSL_FLAG(std::string, save_dir, "checkpoints",
          "Folder for checkpoints; empty: save none.");
ABSL_FLAG(int64_t, save_every, 0,
          "Steps between two checkpoints; one comes after each epoch, and at "
          "the end, in any case.");
ABSL_FLAG(std::string, resume, "",
          "Checkpoint to go on from: a file, or a folder (its latest).");
ABSL_FLAG(std::string, metrics_file, "",
          "File for machine-readable results: one JSON object a line.");
ABSL_FLAG(std::string, log_dir, "",
          "Folder for log files, one a rank. Empty: log to stderr alone. When "
          "its disk is full a line on stderr says so, and training goes on.");
ABSL_FLAG(std::string, trace_file, "",
          "File for a trace of one step on all ranks, in Chrome's format "
          "(Perfetto opens it).");
ABSL_FLAG(int64_t, trace_step, 3,
          "The step that --trace_file shows, counted from 1.");

namespace tandem {
namespace {

std::string PathFlag(const std::string& given) {
  return given.empty() ? given : UserPath(given);
}

absl::StatusOr<std::vector<int64_t>> ParseShape(const std::string& text) {
  std::vector<int64_t> shape;
  if (text.empty()) return shape;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t extent = 0;
    if (!absl::SimpleAtoi(part, &extent) || extent < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--synthetic_shape=", text,
                       ": takes positive numbers with commas between them, "
                       "such as 3,224,224"));
    }
    shape.push_back(extent);
  }
  return shape;
}

}  // namespace

absl::StatusOr<TrainOptions> TrainOptionsFromFlags() {
  TrainOptions options;
  options.model = absl::GetFlag(FLAGS_model);
  options.dataset = absl::GetFlag(FLAGS_dataset);
  options.data_dir = PathFlag(absl::GetFlag(FLAGS_data_dir));
  TANDEM_ASSIGN_OR_RETURN(options.synthetic_shape,
                          ParseShape(absl::GetFlag(FLAGS_synthetic_shape)));
  options.synthetic_classes = absl::GetFlag(FLAGS_synthetic_classes);
  options.synthetic_samples = absl::GetFlag(FLAGS_synthetic_samples);
  options.epochs = absl::GetFlag(FLAGS_epochs);
  options.max_steps = absl::GetFlag(FLAGS_max_steps);
  options.batch_size = absl::GetFlag(FLAGS_batch_size);
  options.drop_last = absl::GetFlag(FLAGS_drop_last);
  options.z_loss = absl::GetFlag(FLAGS_z_loss);
  options.eval_only = absl::GetFlag(FLAGS_eval_only);
  options.optimizer = absl::GetFlag(FLAGS_optimizer);
  options.learning_rate = absl::GetFlag(FLAGS_learning_rate);
  options.momentum = absl::GetFlag(FLAGS_momentum);
  options.nesterov = absl::GetFlag(FLAGS_nesterov);
  options.amsgrad = absl::GetFlag(FLAGS_amsgrad);
  options.weight_decay = absl::GetFlag(FLAGS_weight_decay);
  options.no_weight_decay_on = absl::GetFlag(FLAGS_no_weight_decay_on);
  options.lr_schedule = absl::GetFlag(FLAGS_lr_schedule);
  options.lr_warmup_steps = absl::GetFlag(FLAGS_lr_warmup_steps);
  options.lr_step_size = absl::GetFlag(FLAGS_lr_step_size);
  options.lr_gamma = absl::GetFlag(FLAGS_lr_gamma);
  options.clip_grad_norm = absl::GetFlag(FLAGS_clip_grad_norm);
  options.clip_grad_norm_type = absl::GetFlag(FLAGS_clip_grad_norm_type);
  options.error_if_nonfinite = absl::GetFlag(FLAGS_error_if_nonfinite);
  options.clip_grad_value = absl::GetFlag(FLAGS_clip_grad_value);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.devices = DeviceSettingsFromFlags();
  options.intra_op_threads = absl::GetFlag(FLAGS_intra_op_threads);
  options.workers = absl::GetFlag(FLAGS_workers);
  options.strategy = absl::GetFlag(FLAGS_strategy);
  options.pipeline = PipelineSettingsFromFlags();
  options.backend = absl::GetFlag(FLAGS_backend);
  options.interface = absl::GetFlag(FLAGS_interface);
  options.timeout_s = absl::GetFlag(FLAGS_timeout);
  options.straggler_warning_s = absl::GetFlag(FLAGS_straggler_warning);
  TANDEM_ASSIGN_OR_RETURN(options.ddp, DdpSettingsFromFlags());
  options.log_every = absl::GetFlag(FLAGS_log_every);
  options.save_dir = PathFlag(absl::GetFlag(FLAGS_save_dir));
  options.save_every = absl::GetFlag(FLAGS_save_every);
  options.resume = PathFlag(absl::GetFlag(FLAGS_resume));
  options.metrics_file = PathFlag(absl::GetFlag(FLAGS_metrics_file));
  options.log_dir = PathFlag(absl::GetFlag(FLAGS_log_dir));
  options.trace_file = PathFlag(absl::GetFlag(FLAGS_trace_file));
  options.trace_step = absl::GetFlag(FLAGS_trace_step);
  TANDEM_RETURN_IF_ERROR(Validate(options));
  return options;
}

}  // namespace tandem
