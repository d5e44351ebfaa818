"""GPT-2's vocabulary as OpenAI released it (MIT), to test tokenizers with: a file that MLX's Whisper (MIT) carries."""

load("//third_party/fetch:repositories.bzl", "wheels")

def gpt2_tokenizer():
    wheels(
        name = "gpt2_tokenizer",
        build_file = Label("//third_party/gpt2_tokenizer:gpt2_tokenizer.BUILD"),
        members = ["mlx_whisper/assets/gpt2.tiktoken"],
        wheels = {
            "mlx_whisper-0.4.3-py3-none-any.whl": [
                "mlx-whisper",
                "0.4.3",
                "6b82b6597a994643a3e5496c7bc229a672e5ca308458455bfe276e76ae024489",
            ],
        },
    )
