#pragma once

#include "kernels/common/index_math.h"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_scan/bind.h"
#include "kernels/selective_scan/scan_row.h"
#include "kernels/selective_scan/sequences.h"

// One row (b, d) of selective_scan_fwd in f32, for kernels whose subject is the scan along time: what
// surrounds the recurrence, one time step at a time.

namespace ssmbench {

class F32Row {
 public:
  /// What a step brings to the recurrences of all states, and the output that does not depend on them.
  struct Step {
    float delta, delta_u, y;
  };

  __device__ F32Row(const ScanArgs& args, std::int64_t row) : args_(args) {
    const auto [b, d, g] = scan_row(row, args.dim, args.channels_per_group);
    sequence_ = b * args.sequence.batch + d * args.sequence.dim;
    state_ = row * args.dstate;
    A_ = args.A + d * args.dstate;
    B_ = static_cast<const float*>(args.B) + offset(args.b_strides, b, d, g);
    C_ = static_cast<const float*>(args.C) + offset(args.c_strides, b, d, g);
    bias_ = args.delta_bias != nullptr ? args.delta_bias[d] : 0.0F;
    skip_ = args.D != nullptr ? args.D[d] : 0.0F;
  }

  /// Past the row's end a step that changes no state.
  __device__ Step step(std::int64_t t) const {
    if (t >= args_.seqlen) return {0.0F, 0.0F, 0.0F};
    const float u = at(args_.u, t);
    float delta = at(args_.delta, t) + bias_;
    if (args_.delta_softplus) delta = softplus(delta);
    return {delta, delta * u, skip_ * u};
  }

  __device__ float A(int n) const { return A_[n]; }
  /// 0 past the row's end.
  __device__ float B(int n, std::int64_t t) const { return projection(B_, args_.b_strides, n, t); }
  __device__ float C(int n, std::int64_t t) const { return projection(C_, args_.c_strides, n, t); }

  __device__ float initial_state(int n) const {
    return args_.initial_state != nullptr ? args_.initial_state[state_ + n] : 0.0F;
  }

  /// Gates y and writes it; nothing past the row's end.
  __device__ void write_out(std::int64_t t, float y) const {
    if (t >= args_.seqlen) return;
    if (args_.z != nullptr) y *= silu(at(args_.z, t));
    static_cast<float*>(args_.out)[sequence_ + t * args_.sequence.time] = y;
  }

  __device__ void write_last_state(int n, float h) const { args_.last_state[state_ + n] = h; }

 private:
  static __device__ std::int64_t offset(const ProjectionStrides& s, std::int64_t b, std::int64_t d,
                                        std::int64_t g) {
    return b * s.batch + g * s.group + d * s.channel;
  }
  __device__ float at(const void* sequence, std::int64_t t) const {
    return static_cast<const float*>(sequence)[sequence_ + t * args_.sequence.time];
  }
  __device__ float projection(const float* row, const ProjectionStrides& s, int n, std::int64_t t) const {
    return t < args_.seqlen ? row[n * s.state + t * s.time] : 0.0F;
  }

  const ScanArgs& args_;
  std::int64_t sequence_, state_;
  const float *A_, *B_, *C_;
  float bias_, skip_;
};

/// The unsupported reason of such a kernel; nothing when it supports the problem.
inline std::optional<std::string> not_f32_rows(const Problem& problem) {
  if (auto reason = not_real_zoh(problem)) return reason;
  if (auto reason = packs_sequences(problem)) return reason;
  if (problem.dtype() != DType::f32) return "supports f32 only: it is kept to compare algorithms";
  if (problem.choice("layout") != "bdl")
    return "needs layout bdl: neighbouring threads take neighbouring time steps";
  return {};
}

}  // namespace ssmbench
