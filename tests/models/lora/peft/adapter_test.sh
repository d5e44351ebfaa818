#!/usr/bin/env bash
# adapter_test.sh TRAIN EXPORT CHECK_ADAPTER PACKAGE LIBRARY...: PEFT reads the adapters that jobs have trained.
# PACKAGE is a file beside PEFT's packages, and each LIBRARY one that LibTorch's Python part is linked with.
set -euo pipefail
train=$1 export=$2 check=$3
packages=$(cd "$(dirname "$4")" && pwd)
shift 4
libraries=$(for each; do (cd "$(dirname "$each")" && pwd); done | sort -u | paste -sd :)

. tests/python311.sh
work=$TEST_TMPDIR/work
mkdir -p "$work/tokens"
"$python" -I -S - "$work/tokens" <<'END'
import random
import struct
import sys

draw = random.Random(5)
for name in "train", "val":
    # The smaller, the more often.
    tokens = [draw.randrange(32) // (1 + i % 3) for i in range(400)]
    with open(f"{sys.argv[1]}/{name}.bin", "wb") as file:
        file.write(struct.pack("<400H", *tokens))
END

# job NAME BASE FLAG...: trains, and exports merged weights and an adapter.
job() {
  local folder=$work/$1 base=$PWD/tests/models/hugging_face/testdata/$2
  shift 2
  mkdir "$folder"
  ln -s "$base" "$folder/base"
  "$train" --init_from="$base" --dataset=tokens --data_dir="$work/tokens" --context=8 --vocabulary=32 --batch_size=8 \
    --max_steps=4 --optimizer=adamw --learning_rate=0.05 --lora_rank=2 --lora_alpha=6 --lora_dropout=0.1 \
    --save_dir="$folder/saved" --metrics_file="$folder/metrics.jsonl" "$@"
  "$export" --checkpoint="$folder/saved" --output="$folder/merged"
  "$export" --checkpoint="$folder/saved" --output="$folder/adapter" --lora=adapter
}
job gpt2 gpt2_tied
# Modules of one block, some of whose names are other blocks' as well.
job gpt2_block gpt2_tied '--lora_on=h.1.(attn|mlp)'
job llama llama_tied_grouped --nproc_per_node=2 --pipe=2
job llama_all llama_tied_grouped --lora_on=proj

# Nothing but the packages that are pinned, and nothing is written beside them.
LD_LIBRARY_PATH=$libraries HF_HOME=$TEST_TMPDIR/hub HF_HUB_OFFLINE=1 \
  "$python" -I -S -B "$check" "$packages" "$work"/{gpt2,gpt2_block,llama,llama_all}
