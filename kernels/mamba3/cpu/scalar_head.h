#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "kernels/common/cpu/io_elements.h"
#include "kernels/common/cpu/io_types.h"
#include "kernels/mamba3/args.h"

namespace ssmbench {

/// Where one head of one sequence finds its tensors, and how it reads them; what the scalar loops of Mamba-3
/// share. Angles are kept in turns, so that reducing them is exact.
class Mamba3ScalarHead {
 public:
  Mamba3ScalarHead(const Mamba3Args& args, DType io) : args_(args), scan_(args.scan), io_(io) {}

 protected:
  static constexpr float kTurn = 2 * std::numbers::pi_v<float>;

  float element(const void* data, std::int64_t at) const { return load_element(data, at, io_); }
  void store(void* data, std::int64_t at, float value) const { store_element(data, at, value, io_); }

  /// Steps [begin, end) of batch `batch`; the states are those of sequence `index`.
  void choose(std::int64_t index, std::int64_t batch, std::int64_t begin, std::int64_t end,
              std::int64_t head) {
    index_ = index;
    batch_ = batch;
    begin_ = begin;
    end_ = end;
    head_ = head;
  }
  std::int64_t step_at(std::int64_t t) const { return (batch_ * scan_.seqlen + t) * scan_.nheads + head_; }
  std::int64_t scalar_at(std::int64_t t) const { return (batch_ * scan_.nheads + head_) * scan_.seqlen + t; }
  std::int64_t state_at() const { return index_ * scan_.nheads + head_; }
  std::int64_t k_state_at(std::int64_t r) const {
    return ((index_ * scan_.rank + r) * scan_.nheads + head_) * scan_.dstate;
  }
  /// Row r of Q or K.
  std::int64_t row_at(std::int64_t t, std::int64_t r) const {
    const std::int64_t group = head_ / scan_.heads_per_group();
    return (((batch_ * scan_.seqlen + t) * scan_.rank + r) * scan_.groups + group) * scan_.dstate;
  }
  /// out of rank r, which there is one of where ranks are summed.
  std::int64_t out_at(std::int64_t t, std::int64_t r) const {
    if (scan_.reduces_ranks) return step_at(t) * scan_.headdim;
    return (((batch_ * scan_.seqlen + t) * scan_.rank + r) * scan_.nheads + head_) * scan_.headdim;
  }
  /// An element of MIMO_V, MIMO_Z or MIMO_Out.
  float factor(const float* all, std::int64_t r, std::int64_t p) const {
    return all == nullptr ? 1.0F : all[(head_ * scan_.rank + r) * scan_.headdim + p];
  }

  float rate(std::int64_t t, std::int64_t i) const {
    const std::int64_t at = step_at(t) * scan_.angles + i;
    return scan_.is_mimo ? static_cast<const float*>(args_.rates)[at] : element(args_.rates, at);
  }
  /// The angles before the first step.
  void load_turns(std::vector<float>& turns) const {
    for (std::int64_t i = 0; i < scan_.angles; ++i)
      turns[i] =
          args_.input_angle == nullptr ? 0.0F : args_.input_angle[state_at() * scan_.angles + i] / kTurn;
  }
  /// DT·π·tanh of an angle is DT·tanh/2 turns.
  void turn(std::int64_t t, std::vector<float>& all) const {
    const float dt = args_.dt[scalar_at(t)];
    for (std::int64_t i = 0; i < scan_.angles; ++i) {
      const float turns = all[i] + 0.5F * dt * tanhf(rate(t, i));
      all[i] = turns - rintf(turns);
    }
  }
  /// Q or K of a rank with its bias.
  void load_plain(const void* from, const float* bias, std::int64_t t, std::int64_t r, float* to) const {
    with_io_type(io_, [&]<class Io>(Io) {
      const auto* const row = static_cast<const typename Io::Storage*>(from) + row_at(t, r);
      for (std::int64_t n = 0; n < scan_.dstate; ++n)
        to[n] = Io::load(row[n]) + bias[(head_ * scan_.rank + r) * scan_.dstate + n];
    });
  }
  /// Turns pairs by the angles, or back with sign −1.
  void rotate(const float* turns, float sign, float* x) const {
    for (std::int64_t i = 0; i < scan_.angles; ++i) {
      const float cosine = cosf(kTurn * turns[i]);
      const float sine = sign * sinf(kTurn * turns[i]);
      const std::int64_t first = scan_.first_of_pair(i);
      const std::int64_t second = scan_.second_of_pair(i);
      const float x0 = x[first];
      const float x1 = x[second];
      x[first] = x0 * cosine - x1 * sine;
      x[second] = x0 * sine + x1 * cosine;
    }
  }

  /// α, β, γ of a step and what its gradients take.
  struct Scalars {
    float dt, open, closed, alpha, beta, gamma;
  };
  Scalars scalars(std::int64_t t) const {
    const float trap = element(args_.trap, scalar_at(t));
    const float dt = args_.dt[scalar_at(t)];
    const float alpha = expf(args_.adt[scalar_at(t)]);
    const float open = 1.0F / (1.0F + expf(-trap));
    const float closed = 1.0F / (1.0F + expf(trap));  // 1 − σ(x) = σ(−x)
    return {dt, open, closed, alpha, dt * alpha * closed, dt * open};
  }

  /// The gradients of a sequence without steps, which passes its states through.
  void pass_cotangents(const Mamba3BwdArgs& out) const {
    if (out.dinput_ssm == nullptr) return;
    const auto copy = [](const float* from, float* to, std::int64_t first, std::int64_t count) {
      for (std::int64_t at = first; at < first + count; ++at) to[at] = from == nullptr ? 0.0F : from[at];
    };
    const std::int64_t of_ssm = scan_.headdim * scan_.dstate;
    copy(out.dfinal_angle, out.dinput_angle, state_at() * scan_.angles, scan_.angles);
    copy(out.dfinal_ssm, out.dinput_ssm, state_at() * of_ssm, of_ssm);
    for (std::int64_t r = 0; r < scan_.rank; ++r)
      copy(out.dfinal_k, out.dinput_k, k_state_at(r), scan_.dstate);
    for (std::int64_t at = state_at() * scan_.headdim; at < (state_at() + 1) * scan_.headdim; ++at)
      out.dinput_v[at] = out.dfinal_v == nullptr ? 0.0F : element(out.dfinal_v, at);
  }

  const Mamba3Args& args_;
  const Mamba3& scan_;
  DType io_;
  std::int64_t index_ = 0, batch_ = 0, begin_ = 0, end_ = 0, head_ = 0;
};

/// Calls `run(index, batch, begin, end, head)` for every head of every sequence.
template <class Run>
void for_each_mamba3_head(const Mamba3Args& args, const Run& run) {
  for (std::int64_t m = 0; m < args.scan.sequences; ++m) {
    const bool packed = args.cu_seqlens != nullptr;
    const std::int64_t begin = packed ? args.cu_seqlens[m] : 0;
    const std::int64_t end = packed ? args.cu_seqlens[m + 1] : args.scan.seqlen;
    for (std::int64_t h = 0; h < args.scan.nheads; ++h) run(m, packed ? 0 : m, begin, end, h);
  }
}

}  // namespace ssmbench
