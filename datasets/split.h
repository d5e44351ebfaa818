// Data set split: the parts of a data set.

#ifndef TANDEM_DATASETS_SPLIT_H_
#define TANDEM_DATASETS_SPLIT_H_

namespace tandem {

enum class Split { kTrain, kTest };

}  // namespace tandem

#endif  // TANDEM_DATASETS_SPLIT_H_
