// selective_state_replay, in f64.

#include <algorithm>
#include <vector>

#include "mutants.h"

namespace mutants {
namespace {

class Replay {
 public:
  explicit Replay(const Call& call)
      : call_(call),
        tokens_(call.size("tokens")),
        ring_(call.size("window") + tokens_),
        heads_of_group_(call.size("nheads") / call.size("groups")),
        h_(static_cast<std::size_t>(call.size("dstate"))) {}

  void row(std::int64_t b) {
    slot_ = source_.given() ? source_.data<std::int32_t>()[b] : b;
    if (slot_ < 0) return clear(b);
    count_ = counts_.data<std::int32_t>()[slot_];
    start_ = call_.has(Mistake::ring_from_row_zero) ? 0 : starts_.data<std::int32_t>()[slot_];
    for (std::int64_t head = 0; head < call_.size("nheads"); ++head)
      for (std::int64_t p = 0; p < call_.size("headdim"); ++p) replay(b, head, p);
    for (std::int64_t t = 0; t < tokens_; ++t) append(b, t);
  }

 private:
  double of_head(const Tensor& tensor, std::int64_t b, std::int64_t t, std::int64_t head) const {
    return tokens_ > 1 ? tensor(b, t, head) : tensor(b, head);
  }
  double element(const Tensor& tensor, std::int64_t b, std::int64_t t, std::int64_t i, std::int64_t j) const {
    return tokens_ > 1 ? tensor(b, t, i, j) : tensor(b, i, j);
  }
  double step(std::int64_t b, std::int64_t t, std::int64_t head) const {
    const double dt = of_head(dt_, b, t, head) + (bias_.given() ? bias_(head) : 0);
    return call_.flag("dt_softplus") ? softplus(dt) : dt;
  }
  std::int64_t states() const { return static_cast<std::int64_t>(h_.size()); }

  void advance(double delta, double x, std::int64_t head, const auto& B) {
    for (std::int64_t n = 0; n < states(); ++n) {
      double& h = h_[static_cast<std::size_t>(n)];
      h = std::exp(delta * A_(head)) * h + delta * x * B(n);
    }
  }

  void store(std::int64_t head, std::int64_t p) const {
    for (std::int64_t n = 0; n < states(); ++n)
      state_.set(h_[static_cast<std::size_t>(n)], slot_, head, p, n);
  }

  void replay(std::int64_t b, std::int64_t head, std::int64_t p) {
    const std::int64_t g = head / heads_of_group_;
    for (std::int64_t n = 0; n < states(); ++n) h_[static_cast<std::size_t>(n)] = state_(slot_, head, p, n);
    for (std::int64_t k = 0; k < count_; ++k) {
      const std::int64_t at =
          (start_ + (call_.has(Mistake::counted_from_newest) ? count_ - 1 - k : k)) % ring_;
      advance(ring_dt_(slot_, head, at), ring_x_(slot_, head, at, p), head,
              [&](std::int64_t n) { return ring_B_(slot_, g, at, n); });
    }
    const bool is_full =
        count_ + tokens_ > call_.size("window") || call_.has(Mistake::checkpoint_stored_always);
    if (is_full && !call_.has(Mistake::checkpoint_after_new)) store(head, p);
    for (std::int64_t t = 0; t < tokens_; ++t) {
      const double x = element(x_, b, t, head, p);
      advance(step(b, t, head), x, head, [&](std::int64_t n) { return element(B_, b, t, g, n); });
      double y = D_.given() ? D_(head) * x : 0;
      for (std::int64_t n = 0; n < states(); ++n)
        y += element(C_, b, t, g, n) * h_[static_cast<std::size_t>(n)];
      if (z_.given()) y *= element(z_, b, t, head, p) * sigmoid(element(z_, b, t, head, p));
      tokens_ > 1 ? out_.set(y, b, t, head, p) : out_.set(y, b, head, p);
    }
    if (is_full && call_.has(Mistake::checkpoint_after_new)) store(head, p);
  }

  void append(std::int64_t b, std::int64_t t) const {
    const std::int64_t at = ((call_.has(Mistake::appended_at_count) ? 0 : start_) + count_ + t) % ring_;
    for (std::int64_t head = 0; head < call_.size("nheads"); ++head) {
      ring_dt_.set(call_.has(Mistake::raw_dt_in_ring) ? of_head(dt_, b, t, head) : step(b, t, head), slot_,
                   head, at);
      for (std::int64_t p = 0; p < call_.size("headdim"); ++p)
        ring_x_.set(element(x_, b, t, head, p), slot_, head, at, p);
    }
    for (std::int64_t g = 0; g < call_.size("groups"); ++g)
      for (std::int64_t n = 0; n < states(); ++n) ring_B_.set(element(B_, b, t, g, n), slot_, g, at, n);
  }

  void clear(std::int64_t b) const {
    for (std::int64_t t = 0; t < tokens_; ++t)
      for (std::int64_t head = 0; head < call_.size("nheads"); ++head)
        for (std::int64_t p = 0; p < call_.size("headdim"); ++p)
          tokens_ > 1 ? out_.set(0, b, t, head, p) : out_.set(0, b, head, p);
  }

  const Call& call_;
  std::int64_t tokens_, ring_, heads_of_group_;
  std::int64_t slot_ = 0, count_ = 0, start_ = 0;
  std::vector<double> h_;
  Tensor state_{call_.problem, "state"}, ring_x_{call_.problem, "ring_x"}, ring_B_{call_.problem, "ring_B"},
      ring_dt_{call_.problem, "ring_dt"}, starts_{call_.problem, "start"}, counts_{call_.problem, "count"},
      source_{call_.problem, "source"}, x_{call_.problem, "x"}, dt_{call_.problem, "dt"},
      A_{call_.problem, "A"}, B_{call_.problem, "B"}, C_{call_.problem, "C"}, D_{call_.problem, "D"},
      z_{call_.problem, "z"}, bias_{call_.problem, "dt_bias"}, out_{call_.problem, "out"};
};

}  // namespace

void state_replay(const Call& call) {
  Replay replay(call);
  for (std::int64_t b = 0; b < call.size("batch"); ++b) replay.row(b);
}

}  // namespace mutants
