#!/usr/bin/env python3
"""Makes the first inputs of the fuzz targets: small files of every format.

  python3 tests/fuzz/make_corpus.py

Writes corpus/FORMAT/NAME. What fuzzing has found lies there as well, under
names that say what it is, and is not made by this.
"""

import base64
import glob
import gzip
import json
import os
import struct
import zipfile
import zlib

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def write(target, name, *parts):
    parts = [p if isinstance(p, bytes) else p.encode() for p in parts]
    path = os.path.join(FOLDER, target, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"\n%%\n".join(parts))


def safetensors(header, data):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def make_safetensors():
    write("safetensors", "two_tensors", safetensors(
        {"__metadata__": {"format": "pt"}, "a": entry("F32", [2, 1], 0, 8),
         "b": entry("BF16", [], 8, 10)}, bytes(10)))
    write("safetensors", "empty_tensor", safetensors({"a": entry("I64", [0, 3], 0, 0)}, b""))
    write("safetensors", "no_tensors", safetensors({}, b""))
    write("safetensors", "wrong_checksums", safetensors(
        {"__metadata__": {"tandem.crc32.tensors": "00000000", "tandem.crc32.header": "00000000"},
         "a": entry("U8", [1], 0, 1)}, b"x"))


def make_idx():
    images = b"\0\0\x08\x03" + struct.pack(">3I", 2, 2, 1) + b"abcd"
    write("idx", "images", images)
    write("idx", "images_gzipped", gzip.compress(images, mtime=0))
    write("idx", "labels", b"\0\0\x08\x01" + struct.pack(">I", 3) + b"\0\1\2")
    write("idx", "size_beyond_memory", b"\0\0\x08\x02" + struct.pack(">2I", 2**32 - 1, 2**32 - 1))


def make_images():
    """Of those that the codec's test has."""
    path = os.path.join(os.path.dirname(FOLDER), "..", "core", "image_codec", "images.json")
    with open(path) as file:
        images = {each["name"]: base64.b64decode(each["file"]) for each in json.load(file)}
    for name in ("png_rgb_8", "png_grey_1", "png_palette_4_interlaced", "png_rgba_16_interlaced",
                 "png_palette_transparent", "jpeg_1x1", "jpeg_grey", "jpeg_cmyk", "jpeg_restarts",
                 "jpeg_420_progressive"):
        write("image", name, images[name])
    pixels = bytes(3072)
    write("cifar", "cifar10", b"\x09" + pixels + b"\x00" + pixels)
    write("cifar", "cifar100", b"\x13\x63" + pixels)


def make_arrays():
    for name, version, dictionary in (
            ("one_dimension", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"),
            ("two_dimensions", 2, "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 4), }"),
            ("fortran", 1, "{'descr': '<i8', 'fortran_order': True, 'shape': (2, 2), }"),
            ("size_beyond_memory", 3, "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 1073741823), }")):
        length = struct.pack("<H" if version == 1 else "<I", len(dictionary))
        write("npy", name, b"\x93NUMPY" + bytes((version, 0)) + length + dictionary.encode() + bytes(12))


def make_packed_texts():
    path = os.path.join(os.path.dirname(FOLDER), "..", "tools", "texts", "packed.json")
    with open(path) as file:
        for name, packed in json.load(file).items():
            write("text_stream", name, base64.b64decode(packed))
    write("text_stream", "gzip_short", gzip.compress(b"text\n", mtime=0))
    write("text_stream", "zstd_raw_block", b"\x28\xb5\x2f\xfd\x00\x50" + struct.pack("<I", 5 << 3 | 1)[:3] + b"text\n")


def make_token_files():
    write("token_file", "nanogpt", struct.pack("<4H", 1, 2, 50256, 3))
    for name, magic, version, form in (("llm_c_gpt2", 20240520, 1, "<3H"), ("llm_c_llama3", 20240801, 7, "<3I")):
        header = struct.pack("<3i", magic, version, 3) + bytes(253 * 4)
        write("token_file", name, header + struct.pack(form, 5, 6, 7))
    fields = (1, 2, 100, 3, 1, 99)  # version, bytes of a token, vocabulary, tokens, documents, end of text
    header = b"TANDEMTK" + struct.pack("<2I4Q", *fields) + bytes(16)
    write("token_file", "tandem", header + struct.pack("<4H", 7, 8, 99, 0) + struct.pack("<Q", 0))


def byte_words():
    """The words of the 256 bytes in GPT-2's alphabet."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(others))]


def make_tokenizers():
    words = byte_words() + ["lo", "low", "<|endoftext|>"]
    vocabulary = {word: i for i, word in enumerate(words)}
    write("gpt2_files", "two_merges", json.dumps(vocabulary, ensure_ascii=False), "#version: 0.2\nl o\nlo w\n")
    end = {"id": len(words) - 1, "content": "<|endoftext|>", "single_word": False, "lstrip": False,
           "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
             "end_of_word_suffix": "", "fuse_unk": False, "vocab": vocabulary, "merges": ["l o", "lo w"]}
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [end], "normalizer": None,
             "pre_tokenizer": level, "post_processor": level, "decoder": level, "model": model}
    write("tokenizer_json", "byte_level", json.dumps(whole, ensure_ascii=False))
    split = {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\p{N}| "}, "behavior": "Isolated", "invert": False}
    whole["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, dict(level, use_regex=False)]}
    write("tokenizer_json", "split_by_pattern", json.dumps(whole, ensure_ascii=False))
    ranks = [bytes([b]) for b in range(256)] + [b"lo", b"low"]
    write("tiktoken_ranks", "two_merges", "".join(
        f"{base64.b64encode(word).decode()} {i}\n" for i, word in enumerate(ranks)))


def field(number, value):
    """Of a message of protocol buffers."""
    if isinstance(value, bytes):
        return bytes([number << 3 | 2, len(value)]) + value
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    return bytes([number << 3, value])


def make_sentence_piece():
    pieces = [("<unk>", 2), ("<s>", 3), ("</s>", 3), ("\u2581", 1), ("l", 1), ("o", 1), ("lo", 1), ("\u2581lo", 1)]
    for name, model_type in (("unigram", 1), ("bpe", 2)):
        model = b"".join(
            field(1, field(1, text.encode()) + field(2, -float(i)) + field(3, kind))
            for i, (text, kind) in enumerate(pieces))
        trainer = field(3, model_type) + bytes([0xc0, 2, 0]) + bytes([0xc8, 2, 1]) + bytes([0xd0, 2, 2])
        write("sentence_piece", name, model + field(2, trainer) + field(3, field(1, b"identity")))


def make_folders():
    shard = safetensors({"a": entry("F32", [2], 0, 8)}, struct.pack("<2f", 1, 2))
    crc = lambda data: f"{zlib.crc32(data):08x}"
    manifest = {
        "format": "tandem.checkpoint_folder", "version": 1, "mesh": {"data": 1, "pipe": 1},
        "metadata": {"format": "pt", "tandem.checkpoint": "1", "tandem.step": "4", "tandem.epoch": "0",
                     "tandem.sampler_position": "8", "tandem.seed": "1", "tandem.world_size": "1",
                     "tandem.model": "mlp_small"},
        "files": [{"name": "rank-00000.safetensors", "bytes": len(shard), "crc32": crc(shard)}],
        "tensors": [{"name": "a", "dtype": "F32", "shape": [2],
                     "pieces": [{"file": 0, "begin": 0, "end": 2, "crc32": crc(shard[-8:])}]}]}
    text = json.dumps(manifest, separators=(",", ":"))
    write("checkpoint_folder", "one_tensor", '",' + text[1:] + "\n", shard)
    sliced = safetensors({"__metadata__": {"tandem.slice.a": "0;2;1"}, "a": entry("F32", [2], 0, 8)}, bytes(8))
    write("checkpoint_folder", "slices", '",' + text[1:], sliced)
    of_shards = dict(manifest, version=2, tensors=[
        {"name": "a", "dtype": "F32", "shape": [1, 2],
         "shards": [{"ranges": [[[0, 1]], [[i, 1]]], "strides": [1, 1],
                     "pieces": [{"file": 0, "begin": 0, "end": 1, "crc32": crc(shard[-8:])}]} for i in (0, 1)]}])
    text_of_shards = json.dumps(of_shards, separators=(",", ":"))
    write("checkpoint_folder", "shards", '",' + text_of_shards[1:], shard)
    blocks = ["8|0;2,12;4,1|0+2;0+2,6+2", "8|0;2,12;4,1|0+2;2+2,8+2", "3|0;2,12;1,2|0+2;4+2,10+2",
              "5|3;2,12;1,2|0+2;4+2,10+2"]
    write("checkpoint_folder", "blocks", "", "", "\n".join(blocks))
    write("checkpoint_folder", "runs", "", "", "5|0;2,3,2;1,2,6|\n7|5;2,3,2;1,2,6|")
    write("checkpoint_folder", "overlap", "", "", "\n".join(blocks[:1] + ["8|0;2,12;4,1|0+2;1+2,8+2"] + blocks[2:]))
    write("weights_folder", "one_shard", json.dumps({"metadata": {}, "weight_map": {"a": "a.safetensors"}}), shard)
    write("weights_folder", "shard_outside", json.dumps({"weight_map": {"a": "../a.safetensors"}}), shard)


def collective(sequence, **fields):
    whole = {"id": sequence - 1, "kind": "collective", "operation": "all-reduce", "group": 0, "sequence": sequence,
             "peer": -1, "tag": 0, "dtype": "Float", "sizes": [4], "what": "bucket", "index": 1, "stage": -1,
             "microbatch": -1, "step": 3, "state": "started", "scheduled_ns": 10, "started_ns": 11,
             "awaited_ns": 12, "completed_ns": 0}
    return dict(whole, **fields)


def flight_dump(rank, entries, **fields):
    return json.dumps(dict({
        "version": 1, "rank": rank, "world_size": 2, "job": "j", "host": "h", "pid": 5, "trigger": "timeout",
        "reason": "", "dumped_ns": 99,
        "groups": [{"name": "world", "id": "w", "ranks": [0, 1], "scheduled": len(entries)}],
        "entries": entries}, **fields))


def make_flight_dumps():
    done = collective(1, state="completed", completed_ns=13)
    write("flight_dump", "one_is_behind", flight_dump(0, [done, collective(2)]), flight_dump(1, [done]))
    write("flight_dump", "other_shape", flight_dump(0, [collective(1)]), flight_dump(1, [collective(1, sizes=[5])]))
    write("flight_dump", "message_and_silence", flight_dump(
        0, [collective(1, kind="receive", operation="receive", peer=1, what="activations", microbatch=0, stage=1)]))
    action = collective(0, id=0, kind="action", operation="forward", group=-1, microbatch=0, stage=0, dtype="", sizes=[])
    write("flight_dump", "gave_up", flight_dump(0, [collective(1)]),
          flight_dump(1, [action], trigger="gave up", reason="x"))


def make_pytorch_files():
    """Copies of what PyTorch wrote (tests/core/pytorch_file), and the pickles in them."""
    tests = os.path.dirname(os.path.dirname(FOLDER))
    for path in sorted(glob.glob(os.path.join(tests, "core", "pytorch_file", "data", "*.pt"))):
        name = os.path.basename(path)
        with open(path, "rb") as file:
            write("pytorch_file", name, file.read())
        if not zipfile.is_zipfile(path):
            continue
        with zipfile.ZipFile(path) as archive:
            write("pickle", name[:-3], archive.read(name[:-3] + "/data.pkl"))


def make_configs():
    write("model_config", "gpt2", json.dumps({
        "model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "n_positions": 8, "vocab_size": 11,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}))
    write("model_config", "llama", json.dumps({
        "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2,
        "num_key_value_heads": 1, "intermediate_size": 16, "max_position_embeddings": 8, "vocab_size": 11,
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192}}))


def metrics(*events):
    return "".join(json.dumps(event) + "\n" for event in events)


def make_metrics():
    settings = {"event": "settings", "time": 1.5, "model": "cnn", "dataset": "mnist", "batch_size": 8,
                "batch_per_replica": 8, "optimizer": "sgd", "learning_rate": 0.05, "device": "sim",
                "strategy": "pipeline", "mesh": "data 1 x pipe 2", "schedule": "1f1b", "microbatches": 4}
    step = {"event": "step", "time": 2, "step": 5, "loss": 1.5, "accuracy": 0.5, "learning_rate": 0.05,
            "gradient_norm": None, "samples_per_s": 10, "step_ms": 2, "sums": {"tokens": 7}}
    evaluation = {"event": "eval", "time": 3, "epoch": 1, "loss": 1.25, "accuracy": 0.75, "perplexity": 3.5}
    summary = {"event": "summary", "time": 4, "test_loss": 1.25, "weights_sha256": "00",
               "device_memory": {"sim:0": "12 MiB: parameters 8 MiB, other 4 MiB; 20 MiB reserved"},
               "pipeline_times": "device\n0"}
    start = {"event": "start", "step": 0}
    write("metrics", "run", metrics(settings, {"event": "environment", "cores": 2}, start, step,
                                    {"event": "skipped_step", "step": 6, "skipped_steps": 1}, evaluation, summary))
    write("metrics", "resumed", metrics(start, step, {**step, "step": 10}, {**start, "step": 5}, {**step, "step": 6}))
    write("metrics", "markup", metrics({**settings, "model": "<script>&\"'\0\uffff", "<b>": 1}))
    write("metrics", "torn", metrics(settings, step)[:-9])


def make_texts():
    write("schedule", "1f1b", "# 1F1B\nF0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2\n")
    write("schedule", "two_parts", "0F0,0I0,0W0\n1F0 1B0\n")
    write("schedule", "interleaved", "0F0 2F0 2B0 0B0\n1F0 3F0 3B0 1B0\n")
    write("launch", "flags", "--nnodes=2\n--node_rank=1\n--nproc_per_node=2\n--master_addr=h\n--master_port=29500\n")
    write("launch", "dist_url", "--dist_url=tcp://[::1]:29500\n--world_size=2\n--rank=1\n")
    write("launch", "file_url", "--dist_url=file:///tmp/x\n--world_size=2\n--rank=0\n")
    write("launch", "torchrun", "RANK=1\nWORLD_SIZE=4\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nGROUP_RANK=0\n"
          "MASTER_ADDR=h\nMASTER_PORT=29500\nTORCHELASTIC_RUN_ID=a\n")
    write("launch", "slurm", "SLURM_STEP_ID=0\nSLURM_JOB_ID=7\nSLURM_PROCID=3\nSLURM_NTASKS=5\nSLURM_LOCALID=1\n"
          "SLURM_NODEID=1\nSLURM_NNODES=3\nSLURM_STEP_TASKS_PER_NODE=2(x2),1\nSLURM_STEP_NODELIST=gpu[03-05]\n")
    write("launch", "openmpi", "OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_LOCAL_RANK=1\n"
          "OMPI_COMM_WORLD_LOCAL_SIZE=2\nMASTER_ADDR=h\nMASTER_PORT=1\n")
    write("output_relay", "lines", "\0one\ntwo\n\nthree\nunfinished")
    write("output_relay", "progress_bar", "\x01 10 %\r 20 %\r\ndone\r\n")


if __name__ == "__main__":
    make_safetensors()
    make_idx()
    make_images()
    make_arrays()
    make_packed_texts()
    make_token_files()
    make_tokenizers()
    make_sentence_piece()
    make_folders()
    make_flight_dumps()
    make_pytorch_files()
    make_configs()
    make_metrics()
    make_texts()
