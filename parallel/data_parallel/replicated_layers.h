// Data-parallel layers: a list of layers whose forward runs on several devices
// of one rank, each with a part of the batch.
//
//   LayerList layers = MakeLayers(specs, seed);
//   TANDEM_ASSIGN_OR_RETURN(
//       layers, ReplicateOverDevices(
//                   layers, [&] { return MakeLayers(specs, seed); }, devices));
//   at::Tensor outputs = Forward(layers, inputs);  // on devices[0]
//
// DistributedDataParallel and MeshStrategy (SpecsFromLayers) take it as any
// model that lies on devices[0].

#ifndef TANDEM_PARALLEL_DATA_PARALLEL_REPLICATED_LAYERS_H_
#define TANDEM_PARALLEL_DATA_PARALLEL_REPLICATED_LAYERS_H_

#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/layer.h"

namespace tandem {

// Moves the layers to devices[0] and gives a list of the same names, modules
// and parameters, of which the last layer runs them all by DataParallel, and
// the others hand their input on. Skip connections stay within it; it reads all
// further inputs, and leaves what the loss takes beside the output
// (`loss_takes`, LossNames::outputs). The list is one stage: it must not be
// cut. `layers` must not be called any more.
//
// `counts_all_writes` is DataParallelOptions', for an optimizer of tandem's.
//
// `make` makes the same layers again, a list for each device. What a layer
// throws says where: "replica 1 of 2, on sim:1: ... (in layer conv1)".
//
// InvalidArgument for an empty list and errors of DataParallel::Create. Not for
// statistics that are recorded (core/model/statistics_records.h): a replica has
// only a part of a microbatch.
absl::StatusOr<LayerList> ReplicateOverDevices(
    const LayerList& layers, const std::function<LayerList()>& make,
    const std::vector<c10::Device>& devices,
    const std::vector<std::string>& loss_takes = {},
    bool counts_all_writes = true);

}  // namespace tandem

#endif  // TANDEM_PARALLEL_DATA_PARALLEL_REPLICATED_LAYERS_H_
