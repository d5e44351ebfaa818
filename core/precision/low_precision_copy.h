// Low-precision copy of a parameter: what mixed precision computes with, while
// the parameter itself stays as the optimizer wants it (fp32 master weights).

#ifndef TANDEM_CORE_PRECISION_LOW_PRECISION_COPY_H_
#define TANDEM_CORE_PRECISION_LOW_PRECISION_COPY_H_

#include <ATen/core/Tensor.h>

namespace tandem {

// `parameter` in `dtype`, itself if it is that; a copy lies in `format`. Where
// gradients are recorded it is parameter.to(dtype), a part of the graph. Else
// it is a copy that lives as long as the parameter and is written anew, in its
// place, by the first call after somebody has written to the parameter (its
// version says so): once a step, not once a microbatch. What is no leaf that
// takes a gradient, nor a view of all of one, is converted each time.
//
// Thread-safe, as far as reading a parameter is while another thread writes to
// it. Throws c10::Error.
at::Tensor LowPrecisionCopy(
    const at::Tensor& parameter, at::ScalarType dtype,
    at::MemoryFormat format = at::MemoryFormat::Preserve);

// What is kept of it; undefined: nothing.
at::Tensor KeptLowPrecisionCopy(const at::Tensor& parameter);

// For who writes to a parameter, and can write its copy in the same pass over
// memory: the copy that is kept, as [numel] in the parameter's own order;
// undefined where there is none, or one in another order. When all of it has
// been written, and the write to the parameter has been counted,
// NoteLowPrecisionCopyWritten keeps LowPrecisionCopy from writing it anew.
at::Tensor LowPrecisionCopyToWrite(const at::Tensor& parameter);
void NoteLowPrecisionCopyWritten(const at::Tensor& parameter);

// `copy` is what LowPrecisionCopy gives from now on of a parameter that has no
// values here itself, of its sizes and strides, until DropLowPrecisionCopy.
void GiveLowPrecisionCopy(const at::Tensor& parameter, const at::Tensor& copy);

// Gives the memory of a copy back where training ends: copies of parameters
// that are gone are looked for when others come, which may be never. A later
// request makes another copy.
void DropLowPrecisionCopy(const at::Tensor& parameter);

}  // namespace tandem

#endif  // TANDEM_CORE_PRECISION_LOW_PRECISION_COPY_H_
