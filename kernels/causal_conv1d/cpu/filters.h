#pragma once

#include <vector>

#include "kernels/causal_conv1d/args.h"
#include "kernels/common/cpu/io_types.h"

namespace ssmbench {

/// Weights and bias of all channels in f32, (D, W) and (D,), zeros for a bias that is not there.
struct ConvFilters {
  std::vector<float> weight, bias;

  template <class Io>
  static ConvFilters load(const ConvWeights& from, std::int64_t dim, int width) {
    return from.are_f32 ? load_as<F32>(from, dim, width) : load_as<Io>(from, dim, width);
  }

 private:
  template <class Weight>
  static ConvFilters load_as(const ConvWeights& from, std::int64_t dim, int width) {
    using Storage = typename Weight::Storage;
    ConvFilters filters{std::vector<float>(dim * width), std::vector<float>(dim, 0.0F)};
    for (std::size_t i = 0; i < filters.weight.size(); ++i)
      filters.weight[i] = Weight::load(static_cast<const Storage*>(from.weight)[i]);
    if (from.bias == nullptr) return filters;
    for (std::size_t d = 0; d < filters.bias.size(); ++d)
      filters.bias[d] = Weight::load(static_cast<const Storage*>(from.bias)[d]);
    return filters;
  }
};

inline ConvFilters load_filters(const ConvWeights& from, DType dtype, std::int64_t dim, int width) {
  return with_io_type(dtype, [&]<class Io>(Io) { return ConvFilters::load<Io>(from, dim, width); });
}

}  // namespace ssmbench
