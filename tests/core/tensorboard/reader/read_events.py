"""Has TensorBoard read what write_events.cc has written: read_events.py PACKAGES FOLDER.

PACKAGES is the folder of TensorBoard and of what it needs. Files are read as the Python API for users does
(EventAccumulator), and as TensorBoard's own pages do (the plugins' EventAccumulator, and what the data of a page is
asked for).
"""

import math
import struct
import sys

sys.path.insert(0, sys.argv[1])

import numpy as np  # noqa: E402
from tensorboard.backend.event_processing import event_accumulator, event_file_loader  # noqa: E402
from tensorboard.backend.event_processing import plugin_event_accumulator  # noqa: E402
from tensorboard.util import tensor_util  # noqa: E402

FOLDER = sys.argv[2]
FAR = 2**40


def float32(number):
    return struct.unpack("f", struct.pack("f", number))[0]


def loss(step):
    """The first job has written -step, up to 5; the one that went on after step 3 drops what came later."""
    return float(-step) if step <= 3 else float32(1 / step)


def wall_time(step):
    return 1700000000.0 + step if step <= 3 else 1700003000.0 + step - 3


def pytorch_histogram(values):
    """torch.utils.tensorboard.summary.make_histogram, with SummaryWriter's buckets."""
    edges = []
    edge = 1e-12
    while edge < 1e20:
        edges.append(edge)
        edge *= 1.1
    bins = [-each for each in edges[::-1]] + [0] + edges
    counts, limits = np.histogram(values, bins=bins)
    used = np.flatnonzero(counts)
    start, end = used[0], used[-1] + 1
    return list(limits[start : end + 1]), list(counts[start - 1 : end])


def check(found, expected, what):
    assert found == expected, f"{what}: found {found}, expected {expected}"


def check_histogram(histogram, values):
    limits, counts = pytorch_histogram(values)
    check(histogram.bucket, counts, "buckets")
    check(histogram.bucket_limit, limits, "limits")
    check(histogram.min, values.min(), "min")
    check(histogram.max, values.max(), "max")
    check(histogram.num, len(values), "num")
    assert abs(histogram.sum - values.sum()) < 1e-12
    assert abs(histogram.sum_squares - values.dot(values)) < 1e-12


def weights(step):
    return (np.arange(-50, 51, dtype=np.float32) * np.float32(0.01) * np.float32(step)).astype(np.float64)


def check_as_users():
    everything = {event_accumulator.HISTOGRAMS: 0, event_accumulator.TENSORS: 0}
    events = event_accumulator.EventAccumulator(FOLDER, size_guidance=everything)
    events.Reload()
    check(events.file_version, 2.0, "file version")
    tags = events.Tags()
    scalars = ["far", "perf/step_ms", "train/loss", "train/lr", "wide/nonfinite"]
    check(sorted(tags["scalars"]), scalars, "scalars")
    check(sorted(tags["histograms"]), ["weights/fc.weight", "wide", "zeros"], "histograms")
    check(tags["images"], ["image"], "images")
    check(sorted(tags["tensors"]), ["sample", "settings"], "tensors")
    losses = [(each.wall_time, each.step, each.value) for each in events.Scalars("train/loss")]
    check(losses, [(wall_time(step), step, loss(step)) for step in range(1, 8)], "losses")
    check([each.value for each in events.Scalars("train/lr")], [float32(0.001 * i) for i in range(1, 8)], "rates")
    assert all(math.isnan(each.value) for each in events.Scalars("perf/step_ms"))
    check([each.step for each in events.Scalars("far")], [FAR], "far steps")
    check([(each.step, each.value) for each in events.Scalars("wide/nonfinite")], [(7, 1.0)], "not finite")

    histograms = events.Histograms("weights/fc.weight")
    check([each.step for each in histograms], list(range(1, 8)), "steps of histograms")
    for each in histograms:
        check_histogram(each.histogram_value, weights(each.step))
    zeros = events.Histograms("zeros")[-1].histogram_value
    check((zeros.min, zeros.max, zeros.num), (0, 0, 5), "zeros")
    wide = events.Histograms("wide")[-1].histogram_value
    check((wide.num, sum(wide.bucket)), (5, 5), "wide values")

    image = events.Images("image")[-1]
    check((image.step, image.height, image.width), (7, 2, 3), "image")
    check(image.encoded_image_string[:8], b"\x89PNG\r\n\x1a\n", "PNG")
    text = events.Tensors("settings")[0].tensor_proto
    check(text.string_val[0].decode(), "| flag | value |\n|---|---|\n| größe | 3 |", "settings")
    check(events.SummaryMetadata("settings").plugin_data.plugin_name, "text", "plugin of texts")


def check_as_pages():
    events = plugin_event_accumulator.EventAccumulator(FOLDER)
    events.Reload()
    check(sorted(events.PluginTagToContent("scalars")),
          ["far", "perf/step_ms", "train/loss", "train/lr", "wide/nonfinite"], "scalars of pages")
    check(sorted(events.PluginTagToContent("histograms")), ["weights/fc.weight", "wide", "zeros"],
          "histograms of pages")
    check(sorted(events.PluginTagToContent("text")), ["sample", "settings"], "texts of pages")
    check(sorted(events.PluginTagToContent("images")), ["image"], "images of pages")

    def values(tag):
        return [(each.step, tensor_util.make_ndarray(each.tensor_proto)) for each in events.Tensors(tag)]

    check([(step, float(value)) for step, value in values("train/loss")], [(i, loss(i)) for i in range(1, 8)],
          "losses of pages")
    # Left edge, right edge and count of each bucket.
    buckets = dict(values("weights/fc.weight"))[7]
    limits, counts = pytorch_histogram(weights(7))
    check(buckets[:, 2].tolist(), [float(each) for each in counts[1:]], "buckets of pages")
    check(buckets[1:, 0].tolist(), [float32(each) for each in limits[1:-1]], "left edges")
    check(float(buckets[0, 0]), float32(weights(7).min()), "leftmost edge")
    check(float(buckets[-1, 1]), float32(weights(7).max()), "rightmost edge")
    check(dict(values("zeros"))[7].tolist(), [[0.0, 0.0, 5.0]], "zeros of pages")
    wide = dict(values("wide"))[7]
    assert np.isfinite(wide).all() and wide[:, 2].sum() == 5, wide
    check(dict(values("image"))[7][:2].tolist(), [b"3", b"2"], "image of pages")
    check(dict(values("sample"))[7].tolist(), [b"later"], "text of pages")


def check_raw(files):
    """Each record, in the order in which it was written."""
    kinds = []
    for path in files:
        loader = event_file_loader.RawEventFileLoader(path)
        kinds.append(len(list(loader.Load())))
    # The version, the session, the settings of the first, two and a histogram a step, and five at the end.
    check(kinds, [3 + 3 * 5 + 5, 2 + 3 * 4 + 5], "records")
    first = list(event_file_loader.EventFileLoader(files[0]).Load())
    check(first[0].file_version, "brain.Event:2", "first record")
    later = list(event_file_loader.EventFileLoader(files[1]).Load())
    check((later[1].session_log.status, later[1].step), (1, 4), "session")


check_raw(sys.argv[3:])
check_as_users()
check_as_pages()
print("TensorBoard reads all of it")
