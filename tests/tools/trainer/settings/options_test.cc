#include "tools/trainer/settings/options.h"

#include <cmath>
#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::options_test {
namespace {

using ::testing::HasSubstr;

TEST(TrainOptionsTest, DefaultsAreValid) {
  EXPECT_TRUE(Validate(TrainOptions()).ok());
}

void MakePipeline(TrainOptions& options) {
  options.strategy = "pipeline";
  options.devices.devices_per_rank = 2;
}

TEST(TrainOptionsTest, APipelineNeedsNoSettingOfReplicas) {
  TrainOptions options;
  MakePipeline(options);
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
  options.strategy = "auto";  // a model in parts, which may have replicas
  options.ddp.comm_hook = "fp16";
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
}

// With "auto" it is the number of ranks that makes a pipeline one of several.
TEST(TrainOptionsTest, SeveralPipelinesAverageWhatOneDoesNot) {
  TrainOptions options;
  options.pipeline.pipe = 2;
  options.ddp.bucket_cap_mb = 5;
  options.ddp.comm_hook = "fp16";
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
  EXPECT_TRUE(CheckReplicas(options, 2).ok()) << CheckReplicas(options, 2);
  EXPECT_THAT(std::string(CheckReplicas(options, 1).message()),
              HasSubstr("--bucket_cap_mb=5 is for replicas, but a pipeline is "
                        "one replica"));
  options.ddp = DdpSettings();
  options.ddp.average_parameters_every = 4;
  options.ddp.static_graph = true;
  EXPECT_TRUE(CheckReplicas(options, 2).ok()) << CheckReplicas(options, 2);
  options.ddp.gradient_accumulation_steps = 2;
  EXPECT_THAT(std::string(CheckReplicas(options, 2).message()),
              HasSubstr("a pipeline accumulates over its microbatches"));
}

struct BadOption {
  std::function<void(TrainOptions&)> spoil;
  const char* message;
};

class BadOptionTest : public testing::TestWithParam<BadOption> {};

TEST_P(BadOptionTest, IsRefusedByName) {
  TrainOptions options;
  GetParam().spoil(options);
  EXPECT_THAT(std::string(Validate(options).message()),
              HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadOptionTest,
    testing::Values(
        BadOption{[](TrainOptions& o) { o.epochs = 0; },
                  "--epochs=0: must be from 1"},
        BadOption{[](TrainOptions& o) { o.batch_size = -8; },
                  "--batch_size=-8: must be from 1"},
        BadOption{[](TrainOptions& o) { o.learning_rate = -0.5; },
                  "--learning_rate=-0.5: must be at least 0"},
        BadOption{[](TrainOptions& o) { o.z_loss = -1; },
                  "--z_loss=-1: must be at least 0"},
        BadOption{[](TrainOptions& o) { o.timeout = 0; }, "--timeout=0"},
        BadOption{[](TrainOptions& o) { o.optimizer = "lion"; },
                  "--optimizer=lion: unknown; known: sgd, adam, adamw"},
        BadOption{[](TrainOptions& o) { o.devices.device = "tpu"; },
                  "known: cpu, cuda"},
        BadOption{[](TrainOptions& o) {
                    MakePipeline(o);
                    o.ddp.comm_hook = "fp16";
                  },
                  "--comm_hook=fp16 is for replicas, but a pipeline is one"},
        BadOption{[](TrainOptions& o) {
                    MakePipeline(o);
                    o.ddp.gradient_accumulation_steps = 2;
                  },
                  "leave it out, and give a larger --batch_size with more "
                  "--microbatches"},
        BadOption{[](TrainOptions& o) {
                    o.pipeline.pipe = 2;  // a pipeline by itself
                    o.ddp.gradient_accumulation_steps = 4;
                  },
                  "--gradient_accumulation_steps=4 is for replicas in one"},
        BadOption{[](TrainOptions& o) {
                    o.pipeline.reproducible = true;
                    o.pipeline.microbatch_size = 4;
                    o.ddp.average_parameters_every = 4;
                  },
                  "--average_parameters_every=4 lets sums depend on the"},
        BadOption{[](TrainOptions& o) {
                    o.pipeline.reproducible = true;
                    o.pipeline.microbatch_size = 4;
                    o.ddp.parameters_to_ignore = {"fc1.weight"};
                  },
                  "--parameters_to_ignore=fc1.weight lets sums"},
        BadOption{[](TrainOptions& o) {
                    o.pipeline.reproducible = true;
                    o.pipeline.microbatch_size = 4;
                    o.ddp.sync_batch_norm = true;
                  },
                  "--sync_batch_norm=true lets sums depend on the"},
        BadOption{[](TrainOptions& o) {
                    MakePipeline(o);
                    o.pipeline.reproducible = true;
                    o.pipeline.microbatch_size = 4;
                    o.pipeline.weight_gradient_batch = 2;
                  },
                  "--weight_gradient_batch=2 computes"},
        BadOption{[](TrainOptions& o) {
                    MakePipeline(o);
                    o.pipeline.reproducible = true;
                    o.pipeline.microbatch_size = 4;
                    o.pipeline.deferred_batch_norm = true;
                  },
                  "--deferred_batch_norm takes"},
        BadOption{[](TrainOptions& o) {
                    o.ddp.sync_batch_norm = true;
                    o.strategy = "data_parallel";
                    o.devices.devices_per_rank = 2;
                  },
                  "does not reach the replicas that --strategy=data_parallel"},
        BadOption{[](TrainOptions& o) {
                    o.ddp.sync_batch_norm = true;
                    o.ddp.average_parameters_every = 4;
                  },
                  "--sync_batch_norm has replicas normalise together"},
        BadOption{[](TrainOptions& o) { o.ddp.uneven_inputs = "join"; },
                  "give --nodrop_last as well"},
        BadOption{[](TrainOptions& o) { o.ddp.join_divide_by = "present"; },
                  "give --uneven_inputs=join as well"},
        BadOption{[](TrainOptions& o) { o.backend = "sim_nccl"; },
                  "--backend=sim_nccl rehearses NCCL on simulated devices: set "
                  "--device=sim, not cpu"},
        BadOption{[](TrainOptions& o) {
                    o.backend = "nccl";
                    o.devices.device = "sim";
                  },
                  "--backend=nccl is for GPUs: set --device=cuda"},
        BadOption{[](TrainOptions& o) { o.synthetic_samples = 7; },
                  "--dataset=fashion_mnist"},
        BadOption{[](TrainOptions& o) {
                    o.dataset = "synthetic";
                    o.data_dir = "/data";
                  },
                  "reads no files"},
        BadOption{[](TrainOptions& o) {
                    o.dataset = "synthetic_tokens";
                    o.synthetic_shape = {3, 8, 8};
                  },
                  "--synthetic_shape=3,8,8"},
        BadOption{[](TrainOptions& o) {
                    o.loss_chunk = 8;
                    o.z_loss = 1;
                  },
                  "--loss_chunk=8 computes no logits for --z_loss"},
        BadOption{[](TrainOptions& o) {
                    o.loss_chunk = 8;
                    o.strategy = "data_parallel";
                  },
                  "--strategy=data_parallel gathers samples"},
        BadOption{[](TrainOptions& o) {
                    o.vocab_parallel = 2;
                    o.z_loss = 1;
                  },
                  "--vocab_parallel=2 computes no logits of the whole"},
        BadOption{[](TrainOptions& o) { o.vocab_parallel = 0; },
                  "--vocab_parallel"},
        BadOption{[](TrainOptions& o) { o.vocabulary = 9; },
                  "--vocabulary=9 is for --dataset=tokens"},
        BadOption{[](TrainOptions& o) { o.token_bytes = 4; },
                  "--token_bytes=4 is for --dataset=tokens"},
        BadOption{[](TrainOptions& o) {
                    o.dataset = "tokens";
                    o.token_bytes = 3;
                  },
                  "--token_bytes=3: expected 2 or 4"},
        BadOption{[](TrainOptions& o) { o.context = 9; },
                  "--context=9 is for --dataset=tokens"},
        BadOption{[](TrainOptions& o) { o.document_masks = true; },
                  "--document_masks is for --dataset=tokens"},
        BadOption{[](TrainOptions& o) {
                    o.dataset = "tokens";
                    o.end_of_text = 0;
                  },
                  "--end_of_text=0 tells documents apart"},
        BadOption{[](TrainOptions& o) {
                    o.dataset = "synthetic_tokens";
                    o.synthetic_shape = {8};
                    o.context = 9;
                  },
                  "with --synthetic_shape"},
        BadOption{[](TrainOptions& o) {
                    o.timeout = std::numeric_limits<double>::infinity();
                  },
                  "--timeout=inf"},
        BadOption{[](TrainOptions& o) { o.intra_op_threads = 5000000000; },
                  "--intra_op_threads"},
        BadOption{[](TrainOptions& o) { o.error_if_nonfinite = true; },
                  "--error_if_nonfinite looks at the norm"},
        BadOption{[](TrainOptions& o) { o.devices.cudnn_benchmark = true; },
                  "--cudnn_benchmark is for GPUs: set --device=cuda, not cpu"},
        BadOption{[](TrainOptions& o) {
                    o.devices.allow_tf32 = true;
                    o.devices.device = "sim";
                  },
                  "--allow_tf32 is for GPUs: set --device=cuda, not sim"},
        BadOption{[](TrainOptions& o) {
                    o.devices.device = "cuda";
                    o.devices.cudnn_benchmark = true;
                    o.pipeline.reproducible = true;
                    o.pipeline.microbatch_size = 4;
                  },
                  "--cudnn_benchmark picks kernels by time"},
        BadOption{[](TrainOptions& o) {
                    o.devices.device = "cuda";
                    o.devices.allow_tf32 = true;
                    o.pipeline.reproducible = true;
                    o.pipeline.microbatch_size = 4;
                  },
                  "--allow_tf32 rounds as GPUs with TF32 do"},
        BadOption{[](TrainOptions& o) { o.devices.share_devices = true; },
                  "--share_devices is for GPUs and simulated devices"},
        BadOption{[](TrainOptions& o) {
                    o.devices.share_devices = true;
                    o.devices.device = "cuda";
                    o.backend = "nccl";
                  },
                  "--backend=nccl needs a device for each"},
        BadOption{[](TrainOptions& o) { o.checkpoint_layers = "h("; },
                  "--checkpoint_layers=h(: not a regular expression"},
        BadOption{[](TrainOptions& o) { o.checkpoint_every = -1; },
                  "--checkpoint_every=-1"},
        BadOption{[](TrainOptions& o) {
                    o.checkpoint_every = 2;
                    o.devices.devices_per_rank = 2;
                    o.pipeline.balance = "profile";
                  },
                  "--checkpoint_every=2 drops what --balance=profile"},
        BadOption{[](TrainOptions& o) {
                    o.checkpoint_layers = "h";
                    o.devices.devices_per_rank = 2;
                    o.pipeline.balance = "profile";
                  },
                  "--checkpoint_layers=h drops what --balance=profile"},
        BadOption{[](TrainOptions& o) { o.ddp.comm_hook = "bf16_power_sgd"; },
                  "known: none, allreduce, fp16, bf16, powersgd, "
                  "powersgd_fp16, powersgd_bf16"},
        BadOption{[](TrainOptions& o) { o.ddp.power_sgd_rank = 2; },
                  "--power_sgd_rank is PowerSGD's, but --comm_hook=none"},
        BadOption{[](TrainOptions& o) {
                    o.ddp.comm_hook = "fp16";
                    o.ddp.power_sgd_random_seed = 2;
                  },
                  "--power_sgd_random_seed is PowerSGD's"},
        BadOption{[](TrainOptions& o) {
                    o.ddp.comm_hook = "powersgd";
                    o.ddp.power_sgd_min_compression_rate = 0;
                  },
                  "--power_sgd_min_compression_rate=0: must be from"},
        BadOption{[](TrainOptions& o) {
                    o.ddp.comm_hook = "powersgd";
                    o.ddp.power_sgd_orthogonalization_epsilon = -1;
                  },
                  "--power_sgd_orthogonalization_epsilon=-1"},
        BadOption{
            [](TrainOptions& o) { o.ddp.average_parameters_warmup_steps = 4; },
            "give --average_parameters_every=STEPS as well"},
        BadOption{[](TrainOptions& o) {
                    o.ddp.comm_hook = "allreduce";
                    o.ddp.average_parameters_every = 4;
                  },
                  "--comm_hook=allreduce averages gradients"},
        BadOption{[](TrainOptions& o) { o.ddp.outer_momentum = 0.9; },
                  "give --average_parameters_every=STEPS as well"},
        BadOption{[](TrainOptions& o) { o.ddp.outer_learning_rate = 0.7; },
                  "give --average_parameters_every=STEPS as well"},
        BadOption{[](TrainOptions& o) { o.ddp.shard_optimizer = "yes"; },
                  "known: auto, on, off"},
        BadOption{[](TrainOptions& o) {
                    o.ddp.shard_optimizer = "on";
                    o.ddp.average_parameters_every = 4;
                  },
                  "which --average_parameters_every does not give"},
        BadOption{[](TrainOptions& o) {
                    o.ddp.shard_optimizer = "on";
                    o.ddp.static_graph = true;
                  },
                  "which --static_graph does not give"},
        BadOption{[](TrainOptions& o) {
                    o.ddp.shard_optimizer = "on";
                    o.ddp.skip_all_reduce_unused_params = true;
                  },
                  "which --skip_all_reduce_unused_params does not give"},
        BadOption{[](TrainOptions& o) {
                    o.strategy = "parameter_server";
                    o.ddp.shard_optimizer = "off";
                  },
                  "--shard_optimizer=off is about replicas that average"},
        BadOption{[](TrainOptions& o) { o.ddp.servers = 2; },
                  "--servers=2 is for parameter servers"},
        BadOption{[](TrainOptions& o) {
                    o.strategy = "parameter_server";
                    o.pipeline.reproducible = true;
                    o.pipeline.microbatch_size = 1;
                  },
                  "reproducible"},
        BadOption{[](TrainOptions& o) { o.growth_factor = 4; },
                  "--growth_factor=4 is about the scale of the loss, which "
                  "fp16 alone needs, but products are computed in fp32"},
        BadOption{[](TrainOptions& o) {
                    o.dtype = "bf16";
                    o.init_scale = 1024;
                  },
                  "--init_scale=1024 is about the scale"},
        BadOption{[](TrainOptions& o) {
                    o.dtype = "fp16";
                    o.param_dtype = "bf16";
                    o.growth_interval = 5;
                  },
                  "computed in bf16: give --dtype=fp16, or leave it out"},
        BadOption{[](TrainOptions& o) {
                    o.dtype = "fp16";
                    o.init_scale = 0;
                  },
                  "--init_scale is 0: must be a number from"},
        BadOption{[](TrainOptions& o) {
                    o.dtype = "fp16";
                    o.growth_factor = 1;
                  },
                  "--growth_factor is 1: must be a number greater than 1"},
        BadOption{[](TrainOptions& o) {
                    o.dtype = "fp16";
                    o.backoff_factor = 1;
                  },
                  "--backoff_factor is 1: must be greater than 0"},
        BadOption{[](TrainOptions& o) {
                    o.dtype = "fp16";
                    o.growth_interval = 0;
                  },
                  "--growth_interval is 0: must be at least 1"},
        BadOption{[](TrainOptions& o) {
                    o.dtype = "fp16";
                    o.strategy = "parameter_server";
                  },
                  "but with --strategy=parameter_server nobody sees"},
        BadOption{[](TrainOptions& o) {
                    o.dtype = "fp16";
                    o.ddp.comm_hook = "powersgd_fp16";
                  },
                  "--comm_hook=powersgd_fp16 takes over from step to step"},
        BadOption{[](TrainOptions& o) { o.eval_only = true; },
                  "name it with --resume"},
        BadOption{[](TrainOptions& o) { o.allow_missing = {"lm_head.weight"}; },
                  "are for --init_from=PATH"},
        BadOption{[](TrainOptions& o) {
                    o.init_from = "weights";
                    o.resume = "checkpoints";
                    o.allow_unexpected = {"*.bias"};
                  },
                  "without --resume"},
        BadOption{[](TrainOptions& o) {
                    o.save_every = 5;
                    o.save_dir.clear();
                  },
                  "--save_dir is empty"}));

TEST(TrainOptionsTest, Fp16AloneScalesTheLoss) {
  TrainOptions options;
  EXPECT_FALSE(GradScalerOf(options).has_value());
  options.dtype = "bf16";
  options.reduce_dtype = "fp16";
  EXPECT_FALSE(GradScalerOf(options).has_value());
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
  options.param_dtype = "fp16";
  options.init_scale = 1024;
  options.growth_interval = 5;
  ASSERT_TRUE(GradScalerOf(options).has_value());
  EXPECT_EQ(GradScalerOf(options)->init_scale, 1024);
  EXPECT_EQ(GradScalerOf(options)->growth_interval, 5);
  EXPECT_EQ(GradScalerOf(options)->backoff_factor, 0.5);
  options.reduce_dtype = "fp32";
  options.ddp.comm_hook = "powersgd";
  options.ddp.power_sgd_use_error_feedback = false;
  options.ddp.power_sgd_warm_start = false;
  EXPECT_TRUE(Validate(options).ok()) << Validate(options);
}

}  // namespace
}  // namespace tandem::options_test
