// selective_state_update, form mamba1, and linear_scan, in f64.

#include <vector>

#include "mutants.h"

namespace mutants {

namespace {

/// Uniform in [0, 1), by the finalizer of splitmix64.
double draw(std::uint64_t seed, std::uint64_t element) {
  std::uint64_t hash = seed * 0x9E3779B97F4A7C15U + element;
  for (int round = 0; round < 2; ++round) {
    hash = (hash ^ (hash >> 30U)) * 0xBF58476D1CE4E5B9U;
    hash = (hash ^ (hash >> 27U)) * 0x94D049BB133111EBU;
    hash ^= hash >> 31U;
  }
  return static_cast<double>(hash >> 11U) * 0x1p-53;
}

/// The tensors of a state update by sequence and token, whether they have an axis of tokens or not.
class StateUpdate {
 public:
  explicit StateUpdate(const Call& call)
      : call_(call),
        tokens_(call.size("tokens")),
        has_slots_(call.size("slots") > 0),
        state_(call.problem, "state"),
        x_(call.problem, "x"),
        dt_(call.problem, "dt"),
        A_(call.problem, "A"),
        B_(call.problem, "B"),
        C_(call.problem, "C"),
        D_(call.problem, "D"),
        z_(call.problem, "z"),
        bias_(call.problem, "dt_bias"),
        source_(call.problem, "source"),
        destination_(call.problem, "destination"),
        out_(call.problem, "out"),
        intermediate_(call.problem, "intermediate"),
        scale_(call.problem, "state_scale"),
        seed_(call.problem, "seed") {}

  void channel(std::int64_t b, std::int64_t d) const {
    std::vector<double> h(static_cast<std::size_t>(call_.size("dstate")));
    const std::int64_t from = source(b);
    const double scale = from >= 0 && scale_.given() ? scale_(from, d) : 1;
    for (std::size_t n = 0; n < h.size(); ++n)
      h[n] = from < 0 ? 0 : scale * state_(from, d, static_cast<std::int64_t>(n));
    if (from < 0 && scale_.given() && call_.has(Mistake::padding_has_scale)) scale_.set(1, 0, d);
    for (std::int64_t t = 0; t < tokens_; ++t) {
      token(b, t, d, h);
      store(h, b, t, d);
      if (!call_.has(Mistake::state_rounded_between_tokens)) continue;
      for (double& value : h)
        value = ssmbench::bf16_to_float(ssmbench::float_to_bf16(static_cast<float>(value)));
    }
  }

 private:
  double row(const Tensor& tensor, std::int64_t b, std::int64_t t, std::int64_t d) const {
    return tokens_ > 1 ? tensor(b, t, d) : tensor(b, d);
  }
  double of_group(const Tensor& tensor, std::int64_t b, std::int64_t t, std::int64_t g,
                  std::int64_t n) const {
    if (tokens_ > 1) return tensor.rank() == 3 ? tensor(b, t, n) : tensor(b, t, g, n);
    return tensor.rank() == 2 ? tensor(b, n) : tensor(b, g, n);
  }
  std::int64_t source(std::int64_t b) const {
    if (!has_slots_ || call_.has(Mistake::row_for_slot)) return b;
    const auto slot = source_.data<std::int32_t>()[b];
    return slot < 0 && call_.has(Mistake::padding_stored) ? call_.size("slots") - 1 : slot;
  }
  std::int64_t destination(std::int64_t b, std::int64_t t) const {
    if (!has_slots_) return t == tokens_ - 1 ? b : -1;
    if (call_.has(Mistake::first_destination_only)) t = 0;
    const auto slot = destination_.data<std::int32_t>()[b * tokens_ + t];
    const bool is_padding = source_.data<std::int32_t>()[b] < 0;
    if (is_padding && call_.has(Mistake::padding_stored)) return source(b);
    return slot >= 0 && call_.has(Mistake::source_for_destination) ? source(b) : slot;
  }

  void token(std::int64_t b, std::int64_t t, std::int64_t d, std::vector<double>& h) const {
    const std::int64_t g = d / (call_.size("dim") / call_.size("groups"));
    const double x = row(x_, b, t, d);
    double delta = row(dt_, b, t, d) + (bias_.given() ? bias_(d) : 0);
    if (call_.flag("dt_softplus")) delta = softplus(delta);
    double y = D_.given() ? D_(d) * x : 0;
    for (std::size_t i = 0; i < h.size(); ++i) {
      const auto n = static_cast<std::int64_t>(i);
      h[i] = std::exp(delta * A_(d, n)) * h[i] + delta * x * of_group(B_, b, t, g, n);
      y += of_group(C_, b, t, g, n) * h[i];
    }
    if (z_.given()) y *= row(z_, b, t, d) * sigmoid(row(z_, b, t, d));
    tokens_ > 1 ? out_.set(y, b, t, d) : out_.set(y, b, d);
  }

  void store(const std::vector<double>& h, std::int64_t b, std::int64_t t, std::int64_t d) const {
    const std::int64_t to = destination(b, t);
    for (std::size_t i = 0; i < h.size() && intermediate_.given(); ++i) {
      const std::int64_t at = intermediate_.offset(b, t, d, static_cast<std::int64_t>(i));
      intermediate_.put(at, number(intermediate_, h[i], at));
    }
    if (to < 0 || call_.has(Mistake::state_not_updated)) return;
    const double scale = scale_.given() ? scale_of(h, to, d) : 1;
    for (std::size_t i = 0; i < h.size(); ++i) {
      const std::int64_t at = state_.offset(to, d, static_cast<std::int64_t>(i));
      state_.put(at, number(state_, h[i] / scale, at));
    }
  }

  double scale_of(const std::vector<double>& h, std::int64_t to, std::int64_t d) const {
    if (call_.has(Mistake::scale_kept)) return scale_(to, d);
    double largest = 0;
    for (const double value : h) largest = std::max(largest, std::abs(value));
    // In f32: rows that underflow in it have no scale but 0.
    const auto scale = static_cast<float>(largest / ssmbench::largest_in_scale(state_.dtype()));
    scale_.set(scale > 0 ? scale : 1, to, d);
    return scale > 0 ? scale : 1;
  }

  /// What is stored for x: where rounding is stochastic a neighbour of it, else x, which is rounded when it is
  /// stored.
  double number(const Tensor& tensor, double x, std::int64_t at) const {
    const double step = ssmbench::ulp_at(x, tensor.dtype());
    const double steps = std::abs(x) / step;
    const double low = std::floor(steps);
    if (call_.has(Mistake::toward_zero)) return std::copysign(low * step, x);
    if (!seed_.given()) return x;
    if (call_.has(Mistake::subnormals_flushed) && std::abs(x) < 0x1p-14) return 0;
    double share = steps - low;
    if (call_.has(Mistake::rounded_up)) share = share > 0 ? 1 : 0;
    if (call_.has(Mistake::share_squared)) share *= share;
    const auto element =
        static_cast<std::uint64_t>(call_.has(Mistake::draw_shared) ? at % call_.size("dstate") : at);
    const bool up = draw(static_cast<std::uint64_t>(seed_.data<std::int64_t>()[0]), element) < share;
    return std::copysign((low + (up ? 1 : 0)) * step, x);
  }

  const Call& call_;
  std::int64_t tokens_;
  bool has_slots_;
  Tensor state_, x_, dt_, A_, B_, C_, D_, z_, bias_, source_, destination_, out_, intermediate_, scale_,
      seed_;
};

}  // namespace

void state_update(const Call& call) {
  const StateUpdate update(call);
  for (std::int64_t b = 0; b < call.size("batch"); ++b)
    for (std::int64_t d = 0; d < call.size("dim"); ++d) update.channel(b, d);
}

void linear_scan(const Call& call) {
  const Tensor a(call.problem, "a");
  const Tensor b(call.problem, "b");
  const Tensor out(call.problem, "out");
  for (std::int64_t batch = 0; batch < call.size("batch"); ++batch)
    for (std::int64_t d = 0; d < call.size("dim"); ++d) {
      double h = 0;
      for (std::int64_t t = 0; t < call.size("seqlen"); ++t) {
        const std::int64_t t_of_a = call.has(Mistake::decay_of_step_before) && t > 0 ? t - 1 : t;
        h = a(batch, t_of_a, d) * h + b(batch, t, d);
        out.set(h, batch, t, d);
      }
    }
}

}  // namespace mutants
