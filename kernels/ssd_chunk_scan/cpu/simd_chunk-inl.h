// What Mamba-2's scan and its gradients do with a chunk of one head on SIMD lanes. Compiled once per
// instruction set.

#if defined(SSMBENCH_SSD_SIMD_CHUNK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef SSMBENCH_SSD_SIMD_CHUNK_INL_H
#undef SSMBENCH_SSD_SIMD_CHUNK_INL_H
#else
#define SSMBENCH_SSD_SIMD_CHUNK_INL_H
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/common/cpu/io_elements.h"
#include "kernels/common/cpu/simd_math-inl.h"
#include "kernels/common/cpu/simd_matrix-inl.h"
#include "kernels/common/cpu/simd_product-inl.h"
#include "kernels/ssd_chunk_scan/args.h"
#include "kernels/ssd_chunk_scan/cpu/simd.h"
#include "kernels/ssd_chunk_scan/sequences.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::simd::HWY_NAMESPACE {

/// Δ of raw dt values, bias added, and its slope: 0 outside of dt_limit.
inline VectorSoftplus step_sizes(const SsdInputs& in, FloatVec raw) {
  const FloatTag tag;
  VectorSoftplus delta{raw, hn::Set(tag, 1.0F)};
  if (in.dt_softplus) delta = vector_softplus_with_slope(raw);
  const auto low = hn::Set(tag, in.dt_low);
  const auto high = hn::Set(tag, in.dt_high);
  const auto outside = hn::Or(hn::Lt(delta.value, low), hn::Gt(delta.value, high));
  return {within(low, delta.value, high), hn::IfThenElse(outside, hn::Zero(tag), delta.slope)};
}

/// Steps `begin` … `begin + count` of a sequence.
inline void load_steps(const SsdInputs& in, DType io, const SsdSequence& sequence, std::int64_t head,
                       std::int64_t begin, std::size_t count, SsdSteps& to) {
  const FloatTag tag;
  const std::size_t lanes = hn::Lanes(tag);
  const float bias = in.dt_bias != nullptr ? in.dt_bias[head] : 0.0F;
  alignas(64) float raw[kSsdTile] = {};
  std::size_t first = 0;
  std::size_t reset = kSsdTile;  // the first one
  for (std::size_t t = 0; t < count; ++t) {
    const std::int64_t time = begin + static_cast<std::int64_t>(t);
    const std::int64_t at = sequence.begin + time;
    raw[t] = load_element(in.dt, at * in.nheads + head, io) + bias;
    to.starts[t] = in.seq_idx != nullptr && time > 0 && in.seq_idx[at] != in.seq_idx[at - 1];
    if (to.starts[t]) first = t;
    if (to.starts[t]) reset = std::min(reset, t);
    to.first[t] = static_cast<float>(first);
  }
  const auto steps = hn::Set(tag, static_cast<float>(count));
  for (std::size_t t = 0; t < kSsdTile; t += lanes) {
    const auto exists = hn::Lt(hn::Iota(tag, static_cast<float>(t)), steps);
    const VectorSoftplus delta = step_sizes(in, hn::Load(tag, raw + t));
    hn::Store(hn::IfThenElseZero(exists, delta.value), tag, to.delta + t);
    hn::Store(delta.slope, tag, to.delta_slope + t);
  }
  double sum = 0;
  for (std::size_t t = 0; t < kSsdTile; ++t) {
    sum += static_cast<double>(to.delta[t]) * in.A[head];
    to.decay[t] = static_cast<float>(sum);
  }
  const auto end = hn::Set(tag, to.decay[count - 1]);
  for (std::size_t t = 0; t < kSsdTile; t += lanes) {
    const auto step = hn::Iota(tag, static_cast<float>(t));
    const auto decay = hn::Load(tag, to.decay + t);
    const auto before_reset = hn::Lt(step, hn::Set(tag, static_cast<float>(reset)));
    const auto behind_resets = hn::Ge(step, hn::Set(tag, static_cast<float>(first)));
    hn::Store(hn::IfThenElseZero(before_reset, exponential(decay)), tag, to.enter + t);
    hn::Store(hn::IfThenElseZero(behind_resets, exponential(hn::Sub(end, decay))), tag, to.leave + t);
  }
}

/// The weights of steps s, s + 1, … in step t but for their Δ: e^(decay_t − decay_s), 0 where s is later or
/// of another sequence; and for which steps they are not 0.
struct StepWeights {
  hn::Mask<FloatTag> reaches;
  FloatVec decay;
};
inline StepWeights weights_of(const SsdSteps& steps, std::size_t t, std::size_t s) {
  const FloatTag tag;
  const auto step = hn::Iota(tag, static_cast<float>(s));
  const auto reaches =
      hn::And(hn::Le(step, hn::Set(tag, static_cast<float>(t))), hn::Ge(step, hn::Set(tag, steps.first[t])));
  const auto apart = hn::Sub(hn::Set(tag, steps.decay[t]), hn::Load(tag, steps.decay + s));
  return {reaches, hn::IfThenElseZero(reaches, exponential(apart))};
}

/// Columns of row t of a triangle that the products with triangles read.
inline std::size_t triangle_columns(std::size_t t) {
  return round_up(round_up(t + 1, kTriangleRows), hn::Lanes(FloatTag()));
}

/// D of head dims p, p + 1, ….
inline FloatVec skip_of(const SsdInputs& in, std::int64_t head, std::size_t p) {
  const FloatTag tag;
  if (in.D == nullptr) return hn::Zero(tag);
  if (!in.skip_per_headdim) return hn::Set(tag, in.D[head]);
  alignas(64) float row[kMaxLanes] = {};
  load_row<F32>(in.D + head * in.headdim + static_cast<std::int64_t>(p),
                std::min(hn::Lanes(tag), static_cast<std::size_t>(in.headdim) - p), row);
  return hn::Load(tag, row);
}

}  // namespace ssmbench::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
