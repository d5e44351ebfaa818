#include "tools/trainer/settings/other_names.h"

#include <vector>

namespace tandem {

std::vector<OtherFlagName> OtherNames() {
  return {
      // Names that train had.
      {"bucket_cap_mb_list", "write --bucket_cap_mb=MIB,MIB,..."},
      {"cut", "write --balance=LAYER,..."},
      {"gradient_as_bucket_view",
       "leave it out: gradients always are views of the buffers that are "
       "reduced"},
      {"param_dtype", "write --dtype=NAME"},
      {"power_sgd_min_compression_rate",
       "write --comm_hook=powersgd:min_rate=FACTOR"},
      {"power_sgd_orthogonalization_epsilon",
       "write --comm_hook=powersgd:epsilon=NUMBER"},
      {"power_sgd_random_seed", "write --comm_hook=powersgd:seed=NUMBER"},
      {"power_sgd_rank", "write --comm_hook=powersgd:rank=NUMBER"},
      {"power_sgd_start_step", "write --comm_hook=powersgd:start=STEPS"},
      {"power_sgd_use_error_feedback",
       "write --comm_hook=powersgd:error_feedback=false"},
      {"power_sgd_warm_start", "write --comm_hook=powersgd:warm_start=false"},
      // nanoGPT's.
      {"always_save_checkpoint", "write --save_every=STEPS"},
      {"beta1", "write --adam_beta1=SHARE"},
      {"beta2", "write --adam_beta2=SHARE"},
      {"bias", "write --model=NAME: a GPT has biases, a Llama has none"},
      {"block_size", "write --context=TOKENS"},
      {"compile", "leave it out: nothing is compiled while a job runs"},
      {"decay_lr", "write --lr_schedule=cosine"},
      {"eval_interval",
       "leave it out: the test set is scored after each epoch "
       "(--epochs), or with --eval_only"},
      {"grad_clip", "write --clip_grad_norm=NORM"},
      {"lr_decay_iters",
       "write --max_steps=STEPS: --lr_schedule=cosine ends "
       "at the last step"},
      {"max_iters", "write --max_steps=STEPS"},
      {"min_lr", "write --min_learning_rate=RATE"},
      {"n_embd", "write --width=NUMBER"},
      {"n_head", "write --heads=NUMBER"},
      {"n_layer", "write --layers=NUMBER"},
      {"out_dir", "write --save_dir=FOLDER"},
      {"vocab_size", "write --vocabulary=NUMBER"},
      {"warmup_iters", "write --lr_warmup_steps=STEPS"},
      // PyTorch's, of its examples and of Hugging Face's Trainer.
      {"amp", "write --dtype=bf16 or --dtype=fp16"},
      {"arch", "write --model=NAME"},
      {"b", "write --batch_size=SAMPLES, of all ranks together"},
      {"betas", "write --adam_beta1=SHARE and --adam_beta2=SHARE"},
      {"bf16", "write --dtype=bf16"},
      {"data", "write --data_dir=FOLDER, and --dataset=NAME"},
      {"data_path", "write --data_dir=FOLDER, and --dataset=NAME"},
      {"dist_backend", "write --backend=NAME"},
      {"eps", "write --adam_eps=NUMBER"},
      {"evaluate", "write --eval_only"},
      {"fp16", "write --dtype=fp16"},
      {"gamma", "write --lr_gamma=FACTOR, for --lr_schedule=step"},
      {"gpus", "write --device=cuda and --nproc_per_node=NUMBER"},
      {"gradient_checkpointing", "write --checkpoint_every=1"},
      {"log_interval", "write --log_every=STEPS"},
      {"logging_steps", "write --log_every=STEPS"},
      {"lr", "write --learning_rate=RATE"},
      {"lr_scheduler", "write --lr_schedule=NAME"},
      {"lr_scheduler_type", "write --lr_schedule=NAME"},
      {"max_grad_norm", "write --clip_grad_norm=NORM"},
      {"mixed_precision", "write --dtype=bf16 or --dtype=fp16"},
      {"model_name_or_path", "write --init_from=FOLDER"},
      {"num_epochs", "write --epochs=NUMBER"},
      {"num_train_epochs", "write --epochs=NUMBER"},
      {"num_workers", "write --workers=NUMBER"},
      {"opt", "write --optimizer=NAME"},
      {"output_dir", "write --save_dir=FOLDER"},
      {"per_device_train_batch_size",
       "write --batch_size=SAMPLES, of all ranks together"},
      {"print_freq", "write --log_every=STEPS"},
      {"save_interval", "write --save_every=STEPS"},
      {"save_steps", "write --save_every=STEPS"},
      {"save_total_limit", "write --keep_last=NUMBER"},
      {"standalone", "leave it out: --nproc_per_node=NUMBER is enough"},
      {"start_epoch", "write --resume=CHECKPOINT"},
      {"step_size", "write --lr_step_size=STEPS, for --lr_schedule=step"},
      {"sync_bn", "write --sync_batch_norm"},
      {"train_batch_size", "write --batch_size=SAMPLES"},
      {"warmup_steps", "write --lr_warmup_steps=STEPS"},
      {"wd", "write --weight_decay=NUMBER"},
  };
}

}  // namespace tandem
