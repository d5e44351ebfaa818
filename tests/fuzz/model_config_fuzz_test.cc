// config.json (models/hugging_face/model_config.h).

#include "glog/logging.h"
#include "models/hugging_face/model_config.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text = tandem::InputText(data, size);
  const auto config = tandem::ReadModelConfig(text);
  if (!config.ok()) return 0;
  CHECK_GT(tandem::ContextLength(config->model), 0);
  CHECK_GT(tandem::VocabularySize(config->model), 0);
  tandem::WithDtype(text, "float32");
  const std::string written = tandem::WriteModelConfig(config->model);
  const auto again = tandem::ReadModelConfig(written);
  CHECK(again.ok()) << again.status();
  CHECK_EQ(tandem::WriteModelConfig(again->model), written);
  return 0;
}
