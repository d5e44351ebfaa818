// GPT-2, where it used to be: models/transformer/gpt.h.

#ifndef TANDEM_MODELS_GPT_H_
#define TANDEM_MODELS_GPT_H_

#include "models/transformer/gpt.h"

#endif  // TANDEM_MODELS_GPT_H_
