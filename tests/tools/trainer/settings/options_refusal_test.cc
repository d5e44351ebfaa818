// Settings that make no sense, alone or together, or that would do nothing
// beside others: refused by name. Every flag of the program, in every strategy:
// tests/tools/flag_uses_test.cc.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/testing/statuses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/trainer/settings/given_flags.h"
#include "tools/trainer/settings/options.h"

namespace tandem::options_refusal_test {
namespace {

// Flags as one types them, and a part of what is said of them.
struct Refusal {
  std::string flags;
  std::string says;
};

void ExpectRefused(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.flags);
    const GivenFlags given(refusal.flags);
    const absl::StatusOr<TrainOptions> options = TrainOptionsFromFlags();
    EXPECT_THAT(options.status(), Says(refusal.says));
  }
}

std::vector<Refusal> Misfits() {
  return {
      {"--epochs=0", "--epochs=0: must be from 1"},
      {"--batch_size=-8", "--batch_size=-8: must be from 1"},
      {"--learning_rate=-0.5", "--learning_rate=-0.5: must be at least 0"},
      {"--ema_decay=1", "--ema_decay=1: must be from 0 to 0.9999999"},
      {"--ema_decay=-0.1", "--ema_decay=-0.1: must be from 0 to 0.9999999"},
      {"--ema_decay=nan", "--ema_decay=nan: must be from 0 to 0.9999999"},
      {"--z_loss=-1", "--z_loss=-1: must be at least 0"},
      {"--timeout=0", "--timeout=0"},
      {"--optimizer=lion",
       "--optimizer=lion: unknown; choose one of sgd, adam, adamw, muon"},
      {"--device=tpu", "choose one of cpu, cuda"},
      {"--strategy=pipeline --devices_per_rank=2 --comm_hook=fp16",
       "--comm_hook=fp16 is for replicas, but a pipeline is one"},
      {"--strategy=pipeline --devices_per_rank=2 "
       "--gradient_accumulation_steps=2",
       "leave it out, and give a larger --batch_size with more --microbatches"},
      {"--pipe=2 --gradient_accumulation_steps=4",
       "--gradient_accumulation_steps=4 is for replicas without"},
      {"--reproducible --microbatch_size=4 --average_parameters_every=4",
       "--average_parameters_every=4 lets sums depend on the"},
      {"--reproducible --microbatch_size=4 --parameters_to_ignore=fc1.weight",
       "--parameters_to_ignore=fc1.weight lets sums"},
      {"--reproducible --microbatch_size=4 --sync_batch_norm",
       "--sync_batch_norm=true lets sums depend on the"},
      {"--strategy=pipeline --devices_per_rank=2 --reproducible "
       "--microbatch_size=4 --weight_gradient_batch=2",
       "--weight_gradient_batch=2 computes"},
      {"--strategy=pipeline --devices_per_rank=2 --reproducible "
       "--microbatch_size=4 --deferred_batch_norm",
       "--deferred_batch_norm takes"},
      {"--sync_batch_norm --strategy=data_parallel --devices_per_rank=2",
       "does not reach the replicas that --strategy=data_parallel"},
      {"--sync_batch_norm --average_parameters_every=4",
       "--sync_batch_norm has replicas normalise together"},
      {"--uneven_inputs=join", "give --nodrop_last as well"},
      {"--join_divide_by=present", "give --uneven_inputs=join as well"},
      {"--backend=sim_nccl",
       "--backend=sim_nccl rehearses NCCL on simulated devices: set "
       "--device=sim, not cpu"},
      {"--backend=nccl --device=sim",
       "--backend=nccl is for GPUs: set --device=cuda"},
      {"--synthetic_samples=7", "--dataset=fashion_mnist"},
      {"--dataset=synthetic --data_dir=/data", "reads no files"},
      {"--dataset=image_folder --synthetic_samples=7",
       "--dataset=image_folder"},
      {"--augment=flip",
       "--augment=flip is for --dataset=image_folder, cifar10 and cifar100"},
      {"--dataset=tokens --image_size=8", "--image_size=8 is for"},
      {"--dataset=cifar10 --augment=mixup", "--augment=mixup"},
      {"--dataset=cifar10 --image_mean=1,2", "--image_mean=1,2"},
      {"--dataset=cifar10 --image_std=1,2,0", "--image_std=1,2,0"},
      {"--dataset=cifar10 --image_size=40 --image_resize=36",
       "--image_resize=36"},
      {"--dataset=image_folder --vocabulary=7", "--vocabulary=7"},
      {"--dataset=cifar100 --context=7", "--context=7"},
      {"--dataset=synthetic_tokens --synthetic_shape=3,8,8",
       "--synthetic_shape=3,8,8"},
      {"--loss_chunk=8 --z_loss=1",
       "--loss_chunk=8 computes no logits for --z_loss"},
      {"--loss_chunk=8 --label_smoothing=0.1",
       "--loss_chunk=8 computes no logits for --label_smoothing=0.1 to look"},
      {"--loss_chunk=8 --strategy=data_parallel",
       "--strategy=data_parallel gathers samples"},
      {"--vocab_parallel=2 --z_loss=1",
       "--vocab_parallel=2 computes no logits of the whole"},
      {"--vocab_parallel=2 --label_smoothing=0.1",
       "vocabulary for --label_smoothing=0.1 to look at: leave one out"},
      {"--label_smoothing=1.5", "--label_smoothing=1.5: must be from 0 to 1"},
      {"--vocab_parallel=0", "--vocab_parallel"},
      {"--vocabulary=9", "--vocabulary=9 is for --dataset=tokens"},
      {"--tokens_per_step=1024",
       "--tokens_per_step=1024 is for --dataset=tokens and synthetic_tokens, "
       "but --dataset=fashion_mnist"},
      {"--dataset=tokens --tokens_per_step=1000",
       "does not divide by the 128 tokens of a sample: take 896 or 1024"},
      {"--dataset=tokens --context=64 --tokens_per_step=60",
       "64 tokens of a sample: take 64"},
      {"--dataset=tokens --tokens_per_step=1024 --batch_size=9",
       "--tokens_per_step=1024 is 8 samples of 128 tokens, but --batch_size=9 "
       "was given: give one"},
      {"--gradient_accumulation_steps=2 --microbatch_size=4",
       "--gradient_accumulation_steps=2 and --microbatch_size=4 both say"},
      {"--token_bytes=4", "--token_bytes=4 is for --dataset=tokens"},
      {"--dataset=tokens --token_bytes=3", "--token_bytes=3: expected 2 or 4"},
      {"--context=9", "--context=9 is for --dataset=tokens"},
      {"--document_masks", "--document_masks is for --dataset=tokens"},
      {"--dataset=tokens --end_of_text=0",
       "--end_of_text=0 tells documents apart"},
      {"--dataset=synthetic_tokens --synthetic_shape=8 --context=9",
       "with --synthetic_shape"},
      {"--timeout=inf", "--timeout=inf"},
      {"--intra_op_threads=5000000000", "--intra_op_threads"},
      {"--error_if_nonfinite", "--error_if_nonfinite looks at the norm"},
      {"--cudnn_benchmark",
       "--cudnn_benchmark is for GPUs: set --device=cuda, not cpu"},
      {"--allow_tf32 --device=sim",
       "--allow_tf32 is for GPUs: set --device=cuda, not sim"},
      {"--device=cuda --cudnn_benchmark --reproducible --microbatch_size=4",
       "--cudnn_benchmark picks kernels by time"},
      {"--device=cuda --allow_tf32 --reproducible --microbatch_size=4",
       "--allow_tf32 rounds as GPUs with TF32 do"},
      {"--share_devices", "--share_devices is for GPUs and simulated devices"},
      {"--share_devices --device=cuda --backend=nccl",
       "--backend=nccl needs a device for each"},
      {"--lora_alpha=2", "--lora_alpha=2 is about adapters"},
      {"--lora_on=c_attn", "--lora_on=c_attn is about adapters"},
      {"--lora_dropout=0.1", "--lora_dropout=0.1 is about adapters"},
      {"--lora_rank=-1", "--lora_rank=-1"},
      {"--lora_rank=2 --lora_dropout=1.5", "--lora_dropout=1.5"},
      {"--lora_rank=2 --lora_on=h(", "--lora_on=h(: not a regular expression"},
      {"--lora_rank=2 --lora_alpha=inf", "--lora_alpha=inf: expected a finite"},
      {"--checkpoint_layers=h(",
       "--checkpoint_layers=h(: not a regular expression"},
      {"--checkpoint_every=-1", "--checkpoint_every=-1"},
      {"--checkpoint_every=2 --devices_per_rank=2 --balance=profile",
       "--checkpoint_every=2 drops what --balance=profile"},
      {"--checkpoint_layers=h --devices_per_rank=2 --balance=profile",
       "--checkpoint_layers=h drops what --balance=profile"},
      {"--checkpoint_every=2 --strategy=pipeline --devices_per_rank=2 "
       "--microbatches=auto",
       "--checkpoint_every=2 drops what --microbatches=auto would plan with"},
      {"--microbatches=few", "--microbatches=few: takes a whole number, or"},
      {"--strategy=pipeline --devices_per_rank=2 --microbatches=auto "
       "--reproducible --microbatch_size=4",
       "--microbatches=auto goes by measured times"},
      {"--strategy=pipeline --devices_per_rank=2 --microbatches=auto "
       "--eval_only --resume=checkpoints",
       "--microbatches=auto predicts a step of training, of which --eval_only"},
      {"--comm_hook=bf16_power_sgd",
       "choose one of none, allreduce, fp16, bf16, powersgd, powersgd_fp16, "
       "powersgd_bf16"},
      {"--comm_hook=fp16:seed=2",
       "--comm_hook=fp16:seed=2: fp16 has no options; powersgd"},
      {"--comm_hook=powersgd:rang=2",
       "PowerSGD has no option 'rang'; choose one of rank, start, min_rate, "
       "error_feedback, warm_start, epsilon, seed"},
      {"--comm_hook=powersgd:rank=2,min_rate=0",
       "min_rate takes a factor from 1e-06 to 1e+06, not '0'"},
      {"--comm_hook=powersgd:epsilon=-1", "epsilon takes a number from 0"},
      {"--comm_hook=powersgd:rank=0", "rank takes a whole number from 1"},
      {"--comm_hook=powersgd:rank", "rank takes a whole number from 1"},
      {"--comm_hook=powersgd:start=-1", "start takes a number of steps"},
      {"--comm_hook=powersgd:warm_start=maybe", "warm_start takes true or"},
      {"--comm_hook=powersgd_bf16:seed=-1", "seed takes a whole number, 0"},
      {"--average_parameters_warmup_steps=4",
       "give --average_parameters_every=STEPS as well"},
      {"--comm_hook=allreduce --average_parameters_every=4",
       "--comm_hook=allreduce averages gradients"},
      {"--outer_momentum=0.9", "give --average_parameters_every=STEPS as well"},
      {"--outer_learning_rate=0.7",
       "give --average_parameters_every=STEPS as well"},
      {"--shard=yes",
       "choose one of auto, off, optimizer, gradients, parameters"},
      {"--data_shard=2",
       "give --shard=optimizer, gradients or parameters as well"},
      {"--shard=optimizer --shard_min_num_params=5",
       "give --shard=gradients or parameters as well"},
      {"--shard=gradients --reshard_after_forward=false",
       "give --shard=parameters as well"},
      {"--shard=parameters --max_unsharded_stages=2",
       "give --reshard_after_forward=false as well"},
      {"--shard=optimizer --average_parameters_every=4",
       "which --average_parameters_every does not give"},
      {"--shard=optimizer --static_graph",
       "which --static_graph does not give"},
      {"--shard=optimizer --skip_all_reduce_unused_params",
       "which --skip_all_reduce_unused_params does not give"},
      {"--strategy=parameter_server --shard=off",
       "--shard=off is about replicas that average"},
      {"--servers=2", "--servers=2 is for parameter servers"},
      {"--strategy=parameter_server --reproducible --microbatch_size=1",
       "reproducible"},
      {"--growth_factor=4",
       "--growth_factor=4 is about the scale of the loss, which fp16 alone "
       "needs, but products are computed in fp32"},
      {"--dtype=bf16 --init_scale=1024",
       "--init_scale=1024 is about the scale"},
      {"--dtype=bf16 --growth_interval=5",
       "computed in bf16: give --dtype=fp16, or leave it out"},
      {"--dtype=fp16 --init_scale=0",
       "--init_scale is 0: must be a number from"},
      {"--dtype=fp16 --growth_factor=1",
       "--growth_factor is 1: must be a number greater than 1"},
      {"--dtype=fp16 --backoff_factor=1",
       "--backoff_factor is 1: must be greater than 0"},
      {"--dtype=fp16 --growth_interval=0",
       "--growth_interval is 0: must be at least 1"},
      {"--dtype=fp16 --strategy=parameter_server",
       "but with --strategy=parameter_server nobody sees"},
      {"--dtype=fp16 --comm_hook=powersgd_fp16",
       "--comm_hook=powersgd_fp16 takes over from step to step"},
      {"--eval_only", "name it with --resume"},
      {"--allow_missing=lm_head.weight", "are for --init_from=PATH"},
      {"--init_from=weights --resume=checkpoints --allow_unexpected=*.bias",
       "without --resume"},
      {"--save_every=5 --save_dir=", "--save_dir is empty"},
  };
}

std::vector<Refusal> OptimizerMisfits() {
  return {
      {"--lr_schedule=step", "needs --lr_step_size"},
      {"--nesterov --momentum=0", "--nesterov needs a momentum"},
      {"--nesterov --optimizer=adam", "--nesterov is sgd's"},
      {"--momentum=0.99 --optimizer=adamw",
       "--momentum=0.99 is sgd's, but --optimizer=adamw"},
      {"--lr_step_size=1000",
       "--lr_step_size=1000 is of --lr_schedule=step, but "
       "--lr_schedule=constant"},
      {"--lr_gamma=0.5 --lr_schedule=cosine",
       "--lr_gamma=0.5 is of --lr_schedule=step, but --lr_schedule=cosine"},
      {"--amsgrad --optimizer=sgd",
       "--amsgrad=true is for adam, adamw and muon, but --optimizer=sgd"},
      {"--clip_grad_norm_type=0",
       "--clip_grad_norm_type=0: must be greater than 0"},
      {"--clip_grad_norm_type=nan", "--clip_grad_norm_type=nan"},
      {"--clip_grad_norm_type=1", "give --clip_grad_norm=NORM"},
      {"--no_weight_decay_on=bias",
       "exceptions from --weight_decay, which is 0"},
      {"--weight_decay=0.1 --no_weight_decay_on=bias(",
       "--no_weight_decay_on=bias(: not a regular expression"},
      {"--adam_beta2=0.95",
       "--adam_beta2=0.95 is for adam, adamw and muon, but --optimizer=sgd"},
      {"--optimizer=adamw --adam_beta1=1.5",
       "--adam_beta1=1.5: must be from 0 to 1"},
      {"--optimizer=adam --adam_eps=-1", "--adam_eps=-1: must be at least 0"},
      {"--muon_momentum=0.9 --optimizer=adamw",
       "--muon_momentum=0.9 is muon's, but --optimizer=adamw"},
      {"--muon_nesterov=false",
       "--muon_nesterov=false is muon's, but --optimizer=sgd"},
      {"--optimizer=muon --muon_ns_steps=100",
       "--muon_ns_steps=100: must be from 1 to 99"},
      {"--optimizer=muon --muon_adjust_lr=none",
       "--muon_adjust_lr=none: unknown; choose one of original, "
       "match_rms_adamw"},
      {"--optimizer=muon --learning_rate=0 --muon_learning_rate=0.02",
       "--muon_learning_rate=0.02 goes by the schedule of --learning_rate, "
       "which is 0"},
      {"--optimizer=muon --momentum=0.99",
       "--momentum=0.99 is sgd's, but --optimizer=muon"},
      {"--optimizer=muon --strategy=parameter_server",
       "--optimizer=muon steps whole matrices, but with "
       "--strategy=parameter_server"},
      {"--min_learning_rate=1e-4",
       "--min_learning_rate=0.0001 is where --lr_schedule=cosine, linear and "
       "wsd end, but --lr_schedule=constant"},
      {"--lr_schedule=linear --min_learning_rate=0.5",
       "is greater than the peak, --learning_rate=0.05"},
      {"--lr_schedule=wsd", "needs --lr_wsd_decay_steps=STEPS"},
      {"--lr_schedule=linear --lr_wsd_decay_steps=5",
       "--lr_wsd_decay_steps=5 is of --lr_schedule=wsd, but "
       "--lr_schedule=linear"},
      {"--lr_wsd_decay_style=sqrt",
       "--lr_wsd_decay_style=sqrt is of --lr_schedule=wsd, but"},
      {"--lr_schedule=wsd --lr_wsd_decay_steps=5 "
       "--lr_wsd_decay_style=exponential",
       "exponential: unknown; choose one of linear, sqrt, cosine"},
      {"--lr_schedule=cosine --min_learning_rate=0.5",
       "is greater than the peak, --learning_rate=0.05"},
      {"--lr_schedule=cosine --learning_rate=0 --min_learning_rate=1e-4",
       "is greater than the peak, --learning_rate=0"},
  };
}

std::vector<Refusal> Useless() {
  return {
      {"--synthetic_classes=5",
       "--synthetic_classes=5 is for --dataset=synthetic, but "
       "--dataset=fashion_mnist"},
      {"--synthetic_classes=5 --dataset=synthetic_tokens",
       "but --dataset=synthetic_tokens"},
      {"--vocab_parallel=2 --strategy=parameter_server",
       "--vocab_parallel=2 is for replicas that have no servers, but "
       "--strategy=parameter_server was given"},
      {"--reduce_dtype=bf16 --strategy=parameter_server",
       "--reduce_dtype=bf16 is of gradients between replicas"},
      {"--bucket_cap_mb=5,0", "--bucket_cap_mb=0: must be from 1e-06"},
      {"--bucket_cap_mb=5,x", "takes numbers, such as 1,25"},
      {"--kernels=fixed --kernel_cache=/k",
       "--kernel_cache=/k keeps kernels that are measured, but "
       "--kernels=fixed"},
      {"--reproducible --microbatch_size=4 --kernel_cache=/k",
       "but --reproducible has a rule choose them"},
      {"--device=sim --sim_async --sim_delay_seed=5",
       "--sim_delay_seed=5 is of --sim_delay_us, which is 0"},
      {"--report=/m --metrics_file=/m",
       "--report=/m and --metrics_file are the same file"},
      {"--trace_steps=5",
       "--trace_steps=5 says which steps --trace_file shows"},
      {"--trace_file=/t.json --trace_steps=5 --max_steps=4",
       "--trace_file=/t.json would never be written: step 5 (--trace_steps) "
       "does not come, as the job ends after 4; it has 1 to 4 before it"},
      {"--prometheus_file=/m.txt",
       "--prometheus_file=/m.txt: must end in .prom, as node_exporter's"},
      {"--prometheus_file=/m.prom --metrics_file=/./m.prom",
       "--prometheus_file=/m.prom is --metrics_file as well"},
      {"--trace_file=/t.json --trace_steps=5 --eval_only --resume=/checkpoint",
       "--trace_file=/t.json shows steps of training"},
      {"--misclassified_images=4",
       "--misclassified_images=4 writes for TensorBoard: give "
       "--tensorboard_dir=FOLDER"},
      {"--misclassified_images=4 --tensorboard_dir=/t --dataset=tokens",
       "--misclassified_images=4 shows images, but --dataset=tokens was"},
      {"--misclassified_images=4 --tensorboard_dir=/t "
       "--strategy=parameter_server",
       "--misclassified_images=4 gathers the model on rank 0, for which "
       "workers of --strategy=parameter_server do not meet"},
  };
}

TEST(OptionsRefusalTest, WhatMakesNoSenseIsNamed) { ExpectRefused(Misfits()); }

TEST(OptionsRefusalTest, WhatMakesNoOptimizerIsNamed) {
  ExpectRefused(OptimizerMisfits());
}

TEST(OptionsRefusalTest, WhatWouldDoNothingIsNamed) {
  ExpectRefused(Useless());
}

TEST(OptionsRefusalTest, NoRowIsMissing) {
  EXPECT_EQ(Misfits().size(), 117u);
  EXPECT_EQ(OptimizerMisfits().size(), 30u);
  EXPECT_EQ(Useless().size(), 18u);
}

}  // namespace
}  // namespace tandem::options_refusal_test
