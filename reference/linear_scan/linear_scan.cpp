// The recurrence in fp64, with the running error bound of selective_scan/tile_zoh.cpp. In units of the roundoff
// of the implementation under test, and with the magnitude m_t = |a_t|·m_{t-1} + |b_t|:
//   e_t = |a_t|·e_{t-1} + |a_t|·m_{t-1} + 2·m_t
// A sequential loop rounds the product and the sum, at most 2·m_t. Parallel scans form products of decays as
// well, one rounding per decay: |a_t|·m_{t-1}. As there, the bound does not depend on the order. The bound of
// statistical_bound.h takes its place where it is smaller, with δ = β = 1: decays and terms are exact, and what
// this charges is roundings that are alike because inputs repeat.

#include <algorithm>
#include <array>
#include <cmath>

#include "base/errors.h"
#include "model/problem.h"
#include "ops/linear_scan/linear_scan.h"
#include "reference/common/statistical_bound.h"
#include "reference/reference.h"

namespace ssmbench {
namespace {

// Neighbouring channels lie side by side: a block reads whole cache lines of every dtype.
constexpr std::int64_t kBlockChannels = 64;
/// Steps whose roundings are taken to conspire.
constexpr std::int64_t kTileSteps = 64;

void scan_block(const LinearScan& shape, const TensorSet& inputs, std::int64_t batch, std::int64_t first,
                ReferenceOutput& out, const std::atomic<bool>& stop) {
  const TensorView& a = inputs.at("a");
  const TensorView& b = inputs.at("b");
  const std::int64_t channels = std::min(kBlockChannels, shape.dim - first);
  std::array<double, kBlockChannels> h{}, magnitude{}, error{}, spread{}, tile_decay{};
  StatisticalBound<kBlockChannels> statistical;
  for (std::int64_t t = 0; t < shape.seqlen && !stop; ++t) {
    const std::int64_t row = (batch * shape.seqlen + t) * shape.dim + first;
    if (t % kTileSteps == 0) {
      if (t > 0) statistical.end_tile(spread.data(), tile_decay.data());
      std::copy_n(statistical.start, kBlockChannels, spread.begin());
      tile_decay.fill(1);
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      const double decay = load_as_double(a.data, row + c, a.dtype);
      const double added = load_as_double(b.data, row + c, b.dtype);
      const double kept = std::abs(decay) * magnitude[c];
      spread[c] = std::abs(decay) * (spread[c] + std::abs(h[c])) + std::abs(added);
      tile_decay[c] *= std::abs(decay);
      h[c] = decay * h[c] + added;
      magnitude[c] = kept + std::abs(added);
      error[c] = std::abs(decay) * error[c] + kept + 2 * magnitude[c];
      out.expected[row + c] = h[c];
      out.bound[row + c] = static_cast<float>(smaller_bound(error[c], statistical.kWithinTile * spread[c]));
    }
  }
}

/// Sequential in time, threads over blocks of channels.
ReferenceOutputs compute(const Problem& problem, const TensorSet& inputs, const std::atomic<bool>& stop) {
  const LinearScan shape(problem);
  const auto elements = static_cast<std::size_t>(shape.batch * shape.seqlen * shape.dim);
  ReferenceOutputs outputs;
  auto& out = outputs["out"] = {
      {shape.batch, shape.seqlen, shape.dim}, std::vector<double>(elements), std::vector<float>(elements)};
  const std::int64_t blocks = (shape.dim + kBlockChannels - 1) / kBlockChannels;
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t block = 0; block < shape.batch * blocks; ++block)
    if (!stop) scan_block(shape, inputs, block / blocks, block % blocks * kBlockChannels, out, stop);
  if (stop) throw Interrupted();
  return outputs;
}

std::size_t bytes(const Problem& problem) {
  return output_bytes(problem, [](const TensorSpec&) { return false; });
}

const ReferenceRegistration registration({.op = "linear_scan", .compute = compute, .bytes = bytes});

}  // namespace
}  // namespace ssmbench
