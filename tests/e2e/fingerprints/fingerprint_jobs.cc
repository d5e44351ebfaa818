#include "tests/e2e/fingerprints/fingerprint_jobs.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/train/runs.h"

namespace tandem {
namespace {

using Jobs = std::vector<FingerprintJob>;

// Four steps of 16 samples. Kernels that are measured may be others next time.
const Flags kUsual = {"--batch_size=16", "--synthetic_samples=64",
                      "--kernels=fixed"};

const Flags kTwoRanks = {"--nproc_per_node=2"};
const Flags kPipeline = {"--nproc_per_node=2", "--pipe=2", "--microbatches=4"};
const Flags kHybrid = {"--nproc_per_node=4", "--pipe=2", "--microbatches=4"};
const Flags kReproducible = {"--reproducible", "--microbatch_size=2"};

// A job without its kind and the flags of its kind. Its flags are words.
struct Row {
  const char* name;
  const char* model;
  const char* flags;
  const char* first_part = "";
};

Flags WordsOf(const char* flags) {
  return absl::StrSplit(flags, ' ', absl::SkipEmpty());
}

// Later flags override earlier ones: a row's own those of its kind.
void Add(const std::string& kind, const Flags& flags,
         const std::vector<Row>& rows, Jobs* jobs) {
  for (const Row& row : rows) {
    const Flags all = Joined(kUsual, Joined(flags, WordsOf(row.flags)));
    jobs->push_back({absl::StrCat(kind, "/", row.name), TinyJob(row.model, all),
                     WordsOf(row.first_part)});
  }
}

void AddLayouts(Jobs* jobs) {
  Add("layout", {},
      {{"single", "mlp_dropout", ""},
       {"single_tied", "gpt_tiny_tied", ""},
       {"ddp_2", "mlp_dropout", "--nproc_per_node=2"},
       {"ddp_2_tied", "gpt_tiny_tied", "--nproc_per_node=2"},
       {"ddp_3", "mlp_dropout", "--nproc_per_node=3 --batch_size=15"},
       {"ddp_of_devices", "mlp_dropout",
        "--nproc_per_node=2 --devices_per_rank=2"},
       {"model_parallel", "gpt_tiny_tied",
        "--strategy=model_parallel --devices_per_rank=2"},
       {"data_parallel", "mlp_dropout",
        "--strategy=data_parallel --devices_per_rank=2 --device=sim"},
       {"data_parallel_tied", "gpt_tiny_tied",
        "--strategy=data_parallel --devices_per_rank=2 --device=sim"},
       {"data_parallel_2_ranks", "mlp_dropout",
        "--strategy=data_parallel --devices_per_rank=2 --device=sim "
        "--nproc_per_node=2"},
       {"pipeline_devices", "gpt_tiny_tied",
        "--strategy=pipeline --devices_per_rank=2 --microbatches=4"},
       {"pipeline_ranks_of_devices", "mlp_dropout",
        "--nproc_per_node=2 --pipe=2 --devices_per_rank=2 --microbatches=4"},
       {"pipeline_skips", "unet_tiny",
        "--nproc_per_node=2 --pipe=2 --microbatches=4"},
       {"hybrid_4_ranks", "gpt_tiny_tied",
        "--nproc_per_node=4 --pipe=2 --microbatches=4"},
       {"hybrid_2_ranks_of_devices", "mlp_dropout",
        "--strategy=hybrid --nproc_per_node=2 --devices_per_rank=2 "
        "--schedule=zb_h1"},
       {"hybrid_of_one_stage", "mlp_dropout",
        "--strategy=hybrid --nproc_per_node=2 --microbatches=4"},
       {"parameter_server", "mlp_small",
        "--strategy=parameter_server --nproc_per_node=3 --servers=1 "
        "--optimizer=adamw"},
       {"parameter_servers_2", "mlp_small",
        "--strategy=parameter_server --nproc_per_node=4 --servers=2"}},
      jobs);
}

void AddSchedules(Jobs* jobs) {
  Add("schedule", kPipeline,
      {{"gpipe", "gpt_tiny_tied", "--schedule=gpipe"},
       {"1f1b", "gpt_tiny_tied", "--schedule=1f1b"},
       {"interleaved_1f1b", "gpt_tiny_tied", "--schedule=interleaved_1f1b"},
       {"looped_bfs", "gpt_tiny_tied", "--schedule=looped_bfs"},
       {"zb_h1", "gpt_tiny_tied", "--schedule=zb_h1"},
       {"zb_v", "gpt_tiny_tied", "--schedule=zb_v"}},
      jobs);
}

void AddReproducible(Jobs* jobs) {
  Add("reproducible", kReproducible,
      {{"single", "mlp_dropout", ""},
       {"ddp_2", "mlp_dropout", "--nproc_per_node=2"},
       {"ddp_2_groups", "mlp_dropout",
        "--nproc_per_node=2 --gradient_groups=4"},
       {"ddp_of_devices_zb_v", "gpt_tiny_tied",
        "--nproc_per_node=2 --devices_per_rank=2 --schedule=zb_v "
        "--optimizer=adamw --clip_grad_norm=0.5"},
       {"hybrid_4_ranks", "mlp_dropout", "--nproc_per_node=4 --pipe=2"},
       {"batch_norm", "resnet18", "--nproc_per_node=2 --max_steps=2"},
       {"uneven_batches", "mlp_dropout",
        "--nproc_per_node=2 --nodrop_last --synthetic_samples=45"}},
      jobs);
}

void AddPipelines(Jobs* jobs) {
  Add("pipeline", kPipeline,
      {{"recomputed_always", "gpt_tiny_tied",
        "--checkpoint_activations=always"},
       {"recomputed_but_for_the_last", "gpt_tiny_tied",
        "--schedule=zb_h1 --checkpoint_activations=except_last"},
       {"checkpoint_layers", "gpt_tiny_tied", "--checkpoint_layers=h\\.[02]$"},
       {"weight_gradient_batch", "mlp_dropout",
        "--schedule=zb_h1 --weight_gradient_batch=3"},
       {"weight_gradient_batch_1f1b", "gpt_tiny_tied",
        "--weight_gradient_batch=4"},
       {"uneven_microbatches", "mlp_small",
        "--microbatches=0 --microbatch_size=3"},
       {"batch_norm", "resnet18", "--max_steps=2"},
       {"deferred_batch_norm", "resnet18",
        "--deferred_batch_norm --max_steps=2"},
       {"balance_uniform", "gpt_tiny_tied", "--balance=uniform"},
       {"clip_grad_norm", "gpt_tiny_tied",
        "--clip_grad_norm=0.1 --optimizer=adamw"},
       {"z_loss", "mlp_small", "--z_loss=0.01"}},
      jobs);
}

void AddHybrids(Jobs* jobs) {
  Add("hybrid", kHybrid,
      {{"buckets", "mlp_small", "--bucket_cap_mb=0.01"},
       {"shard", "mlp_dropout", "--shard=optimizer --optimizer=adam"},
       {"clip_grad_norm", "gpt_tiny_tied", "--clip_grad_norm=0.1"},
       {"find_unused_parameters", "gpt_tiny_tied", "--find_unused_parameters"},
       {"skip_nonfinite", "mlp_small", "--skip_nonfinite --learning_rate=1e30"},
       {"z_loss", "mlp_small", "--z_loss=0.01"},
       {"uneven_inputs_join", "mlp_small",
        "--microbatches=8 --nodrop_last --synthetic_samples=35 "
        "--uneven_inputs=join"},
       {"batch_norm", "resnet18", "--max_steps=2"}},
      jobs);
}

// How replicas of one rank each are kept alike.
void AddReplicas(Jobs* jobs) {
  Add("replicas", kTwoRanks,
      {{"gradient_accumulation", "mlp_small",
        "--gradient_accumulation_steps=4"},
       {"tokens_per_step", "gpt_tiny_tied",
        "--batch_size= --tokens_per_step=128 --microbatch_size=3"},
       {"bucket_cap_mb_list", "mlp_small", "--bucket_cap_mb=0.001,0.01"},
       {"init_sync_off", "mlp_small", "--noinit_sync"},
       {"batch_norm", "resnet18", "--max_steps=2"},
       {"broadcast_buffers_off", "resnet18",
        "--nobroadcast_buffers --max_steps=2"},
       {"sync_batch_norm", "resnet18", "--sync_batch_norm --max_steps=2"},
       {"find_unused_parameters", "mlp_small", "--find_unused_parameters"},
       {"static_graph", "mlp_small", "--static_graph"},
       {"skip_all_reduce_unused_params", "mlp_small",
        "--skip_all_reduce_unused_params"},
       {"delay_all_reduce", "mlp_small",
        "--delay_all_reduce_named_params=fc3.weight,fc2.weight "
        "--param_to_hook_all_reduce=fc1.weight"},
       {"parameters_to_ignore", "mlp_small",
        "--parameters_to_ignore=fc1.weight,fc2.bias"},
       {"shard", "mlp_dropout", "--shard=optimizer --optimizer=adam"},
       {"shard_optimizer_auto", "mlp_wide", "--optimizer=adamw --max_steps=2"},
       {"local_sgd", "mlp_small", "--average_parameters_every=2"},
       {"local_sgd_after_warmup", "mlp_small",
        "--average_parameters_every=2 --average_parameters_warmup_steps=1"},
       {"diloco", "mlp_small",
        "--average_parameters_every=2 --outer_learning_rate=0.7 "
        "--outer_momentum=0.9"},
       {"check_replicas", "mlp_small", "--check_replicas_every=1"},
       {"replace_replicas", "mlp_small",
        "--nproc_per_node=3 --batch_size=15 --replace_replicas=5"}},
      jobs);
}

void AddHooks(Jobs* jobs) {
  Add("comm_hook", kTwoRanks,
      {{"allreduce", "mlp_small", "--comm_hook=allreduce"},
       {"fp16", "mlp_small", "--comm_hook=fp16"},
       {"bf16", "mlp_small", "--comm_hook=bf16"},
       {"powersgd", "mlp_small", "--comm_hook=powersgd:start=0"},
       {"powersgd_fp16", "mlp_small", "--comm_hook=powersgd_fp16:start=1"},
       {"powersgd_bf16", "mlp_small",
        "--comm_hook=powersgd_bf16:start=0,rank=2,warm_start=false"}},
      jobs);
}

// What a step trains on, how it computes, and how values are checked.
void AddSteps(Jobs* jobs) {
  Add("step", kTwoRanks,
      {{"uneven_inputs_pad", "mlp_small",
        "--nodrop_last --synthetic_samples=33"},
       {"uneven_inputs_join", "mlp_small",
        "--nodrop_last --synthetic_samples=33 --uneven_inputs=join"},
       {"uneven_inputs_join_initial", "mlp_small",
        "--nodrop_last --synthetic_samples=33 --uneven_inputs=join "
        "--join_divide_by=initial"},
       {"skip_nonfinite", "mlp_small", "--skip_nonfinite --learning_rate=1e30"},
       {"check_finite", "mlp_small", "--check_finite"},
       {"dropout", "gpt_tiny_tied", "--dropout=0.2"},
       {"checkpoint_layers", "gpt_tiny_tied", "--checkpoint_layers=h\\.[02]$"},
       {"checkpoint_every", "gpt_tiny_tied", "--checkpoint_every=2"},
       {"channels_last", "cnn", "--channels_last"}},
      jobs);
}

void AddUpdates(Jobs* jobs) {
  Add("update", kTwoRanks,
      {{"clip_grad_norm", "mlp_small", "--clip_grad_norm=0.1"},
       {"clip_grad_norm_1", "mlp_small",
        "--clip_grad_norm=0.1 --clip_grad_norm_type=1 --error_if_nonfinite"},
       {"clip_grad_norm_inf", "mlp_small",
        "--clip_grad_norm=0.1 --clip_grad_norm_type=inf"},
       {"clip_grad_value", "mlp_small", "--clip_grad_value=0.001"},
       {"clip_both", "gpt_tiny_tied",
        "--clip_grad_value=0.001 --clip_grad_norm=0.1"},
       {"sgd", "mlp_small", "--momentum=0"},
       {"nesterov", "cnn", "--nesterov --weight_decay=0.01"},
       {"adam", "mlp_small",
        "--optimizer=adam --adam_beta1=0.8 --adam_beta2=0.95 --adam_eps=1e-6 "
        "--weight_decay=0.01"},
       {"adamw", "mlp_small", "--optimizer=adamw --weight_decay=0.1"},
       {"amsgrad", "mlp_small",
        "--optimizer=adamw --weight_decay=0.1 --amsgrad"},
       {"no_weight_decay_on", "mlp_small",
        "--weight_decay=0.1 --no_weight_decay_on=bias$"},
       {"no_weight_decay_on_tied", "gpt_tiny_tied",
        "--optimizer=adamw --weight_decay=0.5 "
        "--no_weight_decay_on=lm_head.weight$"},
       {"cosine", "mlp_small",
        "--optimizer=adamw --lr_schedule=cosine --lr_warmup_steps=2 "
        "--min_learning_rate=0.0001"},
       {"decay_by_steps", "mlp_small",
        "--lr_schedule=step --lr_step_size=2 --lr_gamma=0.5"},
       {"linear", "mlp_small",
        "--lr_schedule=linear --lr_warmup_steps=1 --min_learning_rate=0.01"},
       {"wsd", "mlp_small",
        "--lr_schedule=wsd --lr_wsd_decay_steps=2 --lr_wsd_decay_style=sqrt"}},
      jobs);
}

void AddLosses(Jobs* jobs) {
  Add("loss", kTwoRanks,
      {{"z_loss", "mlp_small", "--z_loss=0.01"},
       {"label_smoothing", "mlp_small", "--label_smoothing=0.1"},
       {"chunks", "llama_tiny",
        "--dataset=synthetic_tokens --synthetic_shape=16 --loss_chunk=100"},
       {"vocab_parallel_pipeline", "gpt_tiny_tied",
        "--vocab_parallel=2 --pipe=2 --schedule=zb_h1 --optimizer=adamw "
        "--reproducible --microbatch_size=4"},
       {"vocab_parallel_sharded", "gpt_tiny_tied",
        "--vocab_parallel=2 --shard=optimizer --optimizer=adamw "
        "--reproducible --microbatch_size=4"}},
      jobs);
}

// Each word of the text is a document, which its space ends.
void AddDocuments(const std::string& text, Jobs* jobs) {
  const Flags documents = {"--dataset=tokens",   "--data_dir=" + text,
                           "--synthetic_shape=", "--synthetic_samples=0",
                           "--context=48",       "--vocabulary=256",
                           "--document_masks",   "--end_of_text=32",
                           "--max_steps=3"};
  Add("document_masks", Joined(kTwoRanks, documents),
      {{"ddp", "llama_tiny", ""},
       {"ddp_chunks", "llama_tiny", "--loss_chunk=100"},
       {"pipeline", "gpt_tiny",
        "--pipe=2 --schedule=zb_h1 --reproducible --microbatch_size=4"}},
      jobs);
}

void AddDtypes(Jobs* jobs) {
  Add("dtype", kTwoRanks,
      {{"bf16", "mlp_small", "--dtype=bf16"},
       {"bf16_clipped", "gpt_tiny_tied",
        "--dtype=bf16 --clip_grad_norm=0.1 --optimizer=adamw"},
       {"bf16_pipeline", "mlp_small", "--dtype=bf16 --pipe=2 --microbatches=4"},
       {"bf16_hybrid", "mlp_small",
        "--dtype=bf16 --nproc_per_node=4 --pipe=2 --microbatches=4"},
       {"bf16_reproducible", "mlp_small",
        "--dtype=bf16 --reproducible --microbatch_size=2"},
       // The first steps overflow and are skipped.
       {"fp16", "mlp_small", "--dtype=fp16 --init_scale=16777216 --epochs=4"},
       {"fp16_growth", "mlp_small",
        "--dtype=fp16 --init_scale=32768 --growth_interval=2"},
       {"fp16_hybrid", "mlp_small",
        "--dtype=fp16 --optimizer=adamw --nproc_per_node=4 --pipe=2 "
        "--microbatches=4"},
       {"param_bf16", "mlp_small", "--dtype=bf16"},
       {"reduce_bf16", "mlp_small", "--reduce_dtype=bf16"},
       {"reduce_fp16", "mlp_small", "--reduce_dtype=fp16"}},
      jobs);
}

// The same layouts over Gloo and over simulated NCCL.
void AddBackends(Jobs* jobs) {
  const std::vector<Row> layouts = {
      {"ddp_2", "mlp_dropout", "--nproc_per_node=2"},
      {"ddp_3", "mlp_dropout", "--nproc_per_node=3 --batch_size=15"},
      {"pipeline", "gpt_tiny_tied",
       "--nproc_per_node=2 --pipe=2 --microbatches=4"},
      {"hybrid", "gpt_tiny_tied",
       "--nproc_per_node=4 --pipe=2 --microbatches=4 --clip_grad_norm=0.1"},
      {"shard", "mlp_dropout",
       "--nproc_per_node=2 --shard=optimizer --optimizer=adam"}};
  Add("gloo", {"--backend=gloo"}, layouts, jobs);
  Add("sim_nccl", {"--device=sim", "--backend=sim_nccl", "--sim_delay_us=20"},
      layouts, jobs);
}

void AddDevices(Jobs* jobs) {
  Add("sim", {"--device=sim"},
      {{"single", "gpt_tiny_tied", ""},
       {"ddp_2", "mlp_dropout", "--nproc_per_node=2"},
       {"streams_model_parallel", "mlp_dropout",
        "--devices_per_rank=2 --sim_async --sim_delay_us=50"},
       {"streams_pipeline", "gpt_tiny_tied",
        "--strategy=pipeline --devices_per_rank=2 --microbatches=4 "
        "--sim_async --sim_delay_us=50 --sim_delay_seed=7"},
       {"cut", "mlp_small", "--devices_per_rank=2 --balance=fc2"},
       {"share_devices", "mlp_small", "--share_devices --nproc_per_node=2"}},
      jobs);
}

// One run takes the first steps, and another goes on from its checkpoint.
void AddResumed(Jobs* jobs) {
  Add("resume", {},
      {{"single", "mlp_dropout",
        "--optimizer=adamw --amsgrad --weight_decay=0.1", "--max_steps=2"},
       {"batch_norm", "resnet18", "--nproc_per_node=2 --max_steps=3",
        "--max_steps=1"},
       {"shard", "mlp_dropout",
        "--nproc_per_node=2 --shard=optimizer --optimizer=adam",
        "--max_steps=2"},
       {"diloco", "mlp_small",
        "--nproc_per_node=2 --average_parameters_every=2 "
        "--outer_learning_rate=0.7 --outer_momentum=0.9",
        "--max_steps=2"},
       {"fp16", "mlp_small",
        "--nproc_per_node=2 --dtype=fp16 --init_scale=32768 "
        "--growth_interval=1",
        "--max_steps=2"},
       {"pipeline", "gpt_tiny_tied",
        "--nproc_per_node=2 --pipe=2 --microbatches=4 --schedule=zb_v "
        "--optimizer=adamw",
        "--max_steps=2"},
       {"parameter_server", "mlp_small",
        "--strategy=parameter_server --nproc_per_node=3 --servers=1",
        "--max_steps=2"},
       {"other_layout", "mlp_dropout",
        "--reproducible --microbatch_size=2 --nproc_per_node=2 "
        "--optimizer=adamw --clip_grad_norm=0.5",
        "--max_steps=2 --nproc_per_node=4 --pipe=2"}},
      jobs);
}

}  // namespace

std::vector<FingerprintJob> FingerprintJobs(const std::string& text) {
  Jobs jobs;
  AddLayouts(&jobs);
  AddSchedules(&jobs);
  AddReproducible(&jobs);
  AddPipelines(&jobs);
  AddHybrids(&jobs);
  AddReplicas(&jobs);
  AddHooks(&jobs);
  AddSteps(&jobs);
  AddUpdates(&jobs);
  AddLosses(&jobs);
  AddDocuments(text, &jobs);
  AddDtypes(&jobs);
  AddBackends(&jobs);
  AddDevices(&jobs);
  AddResumed(&jobs);
  return jobs;
}

}  // namespace tandem
