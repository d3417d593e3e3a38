#pragma once

#include "model/tensor.h"

namespace ssmbench {

/// Where a tensor lies in its device's memory; null where the problem does not have it.
template <class T>
T* data_of(const TensorSet& tensors, const char* name) {
  const TensorView* view = tensors.find(name);
  return view == nullptr ? nullptr : static_cast<T*>(view->data);
}

}  // namespace ssmbench
