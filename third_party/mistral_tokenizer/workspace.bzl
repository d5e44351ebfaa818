"""Mistral's tokenizers as their makers released them (Apache-2.0), to test with: sentencepiece models."""

load("//third_party/fetch:repositories.bzl", "wheels")

def mistral_tokenizer():
    wheels(
        name = "mistral_tokenizer",
        build_file = Label("//third_party/mistral_tokenizer:mistral_tokenizer.BUILD"),
        members = [
            "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3",
            "mistral_common/data/tokenizer.model.v1",
        ],
        wheels = {
            "mistral_common-1.13.1-py3-none-any.whl": [
                "mistral-common",
                "1.13.1",
                "98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af",
            ],
        },
    )
