"""TensorBoard 2.21.0 without its pages and its server, and the packages with which it reads event files."""

load("//third_party/fetch:repositories.bzl", "wheels")

# Of Python 3.11, Debian 12's. //third_party/peft has it as well.
NUMPY_WHEEL = {
    "numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl": [
        "numpy",
        "2.4.6",
        "89cd468399cfd2504718f0ba50e410dca55a170b61a02ad92bb18c8a65186e93",
    ],
}

def tensorboard():
    pins = dict(NUMPY_WHEEL)
    pins.update({
        "absl_py-2.5.1-py3-none-any.whl": [
            "absl-py",
            "2.5.1",
            "721200f2f0e9960f2ca9dc3a2a706b201f5f75d812c158f059cbbe29eeafbdb8",
        ],
        "protobuf-7.36.2-cp310-abi3-manylinux2014_x86_64.whl": [
            "protobuf",
            "7.36.2",
            "89f23aa53c24553a2416fd4fd1ec06f74fa42b14b546d8883128813f775bbfd2",
        ],
        "tensorboard-2.21.0-py3-none-any.whl": [
            "tensorboard",
            "2.21.0",
            "7279316dcb6bd5bc391d623dea841531299cde1887310e8133bc34a996d32255",
        ],
    })
    wheels(
        name = "tensorboard",
        build_file = Label("//third_party/tensorboard:tensorboard.BUILD"),
        members = [
            "absl/*.py",
            "google/*",
            "numpy.libs/*",
            "numpy/*.py",
            "numpy/*.so",
            "tensorboard/*.py",
        ],
        wheels = pins,
    )
