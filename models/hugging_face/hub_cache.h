// Cache of Hugging Face's hub: the folders models--OWNER--NAME, whose snapshots
// are what looks like a downloaded model.

#ifndef TANDEM_MODELS_HUGGING_FACE_HUB_CACHE_H_
#define TANDEM_MODELS_HUGGING_FACE_HUB_CACHE_H_

#include <string>

namespace tandem {

// " (did you mean FOLDER/snapshots/HASH?)" where `folder` is of the cache and
// has a snapshot with a config.json; else "".
std::string HintOfHubCache(const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_MODELS_HUGGING_FACE_HUB_CACHE_H_
