// selective_scan_fwd, method zoh, real A: one row after the other in f32.

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "mutants.h"

namespace mutants {
namespace {

/// Where an implementation that works in chunks would have its boundaries.
constexpr std::int64_t kChunk = 16;

float rounded_to(float value, ssmbench::DType dtype) {
  std::uint16_t bits = 0;
  ssmbench::store_from_double(&bits, 0, dtype, value);
  return static_cast<float>(ssmbench::load_as_double(&bits, 0, dtype));
}

class Scan {
 public:
  explicit Scan(const Call& call) : call_(call) {
    if (has(Mistake::stale_workspace) && call.number == 1)
      std::copy_n(A_.data<float>(), dim_ * dstate_, call.workspace);
  }

  void run() {
    const std::int64_t elements = call_.size("batch") * dim_ * seqlen_;
    if (has(Mistake::result_kept) && !std::isnan(out_.get(elements - 1))) return;
    const std::int64_t channels = is_lazy(call_) ? dim_ / 8 : dim_;
    for (std::int64_t b = 0; b < call_.size("batch"); ++b)
      for (std::int64_t d = 0; d < channels; ++d)
        if (call_.flag("cu_seqlens"))
          run_packed(d);
        else if (!has(Mistake::rows_remembered) || !recall_row(b, d))
          run_row(b, d);
    if (has(Mistake::wrong_from_tenth_call) && call_.number >= 10) out_.put(0, out_.get(0) + 1);
    if (has(Mistake::race_on_one_element) && call_.number % 3 == 2) out_.put(elements - 1, 0);
    // Two at a time, but for the last of an odd number; or with it.
    if (has(Mistake::write_past_end)) out_.put(elements, 0);
  }

 private:
  bool has(Mistake which) const { return call_.has(which); }
  void run_row(std::int64_t b, std::int64_t d);
  void run_packed(std::int64_t d);
  bool recall_row(std::int64_t b, std::int64_t d);
  float delta_at(std::int64_t b, std::int64_t d, std::int64_t t, bool past_end) const;
  float step(std::int64_t b, std::int64_t d, std::int64_t t, float x, float delta);
  float decay_of(float exponent) const;
  void finish_step(std::int64_t b, std::int64_t d, std::int64_t t, float x, float y) const;

  const Call& call_;
  std::int64_t dim_ = call_.size("dim"), seqlen_ = call_.size("seqlen"), dstate_ = call_.size("dstate");
  std::int64_t groups_ = call_.size("groups");
  Tensor u_{call_.problem, "u"}, delta_{call_.problem, "delta"}, A_{call_.problem, "A"};
  Tensor B_{call_.problem, "B"}, C_{call_.problem, "C"}, D_{call_.problem, "D"}, z_{call_.problem, "z"};
  Tensor bias_{call_.problem, "delta_bias"}, initial_{call_.problem, "initial_state"};
  Tensor out_{call_.problem, "out"}, last_{call_.problem, "last_state"};
  std::array<float, 256>
      own_state_{};  // of as many states as there may be: a signal handler may not allocate
  float* state_ = own_state_.data();
};

float Scan::delta_at(std::int64_t b, std::int64_t d, std::int64_t t, bool past_end) const {
  auto delta = static_cast<float>(past_end ? 0 : delta_(b, d, t));
  const float bias = bias_.given() ? static_cast<float>(bias_(d)) : 0;
  if (!has(Mistake::bias_after_softplus)) delta += bias;
  if (has(Mistake::softplus_overflows))
    delta = std::log1p(std::exp(delta));
  else if (call_.flag("delta_softplus"))
    delta = static_cast<float>(softplus(delta));
  if (has(Mistake::large_steps_lost) && delta > 0.75F) delta = 0;
  if (has(Mistake::bias_after_softplus)) delta += bias;
  if (has(Mistake::input_modified)) delta_.set(delta, b, d, t);
  return delta;
}

float Scan::decay_of(float exponent) const {
  if (has(Mistake::exponent_clamped)) exponent = std::max(exponent, -8.0F);
  const float decay = std::exp(exponent);
  return has(Mistake::exp_biased) ? std::nextafter(decay, 2.0F) : decay;
}

/// The states after step t, and what the output is made of.
float Scan::step(std::int64_t b, std::int64_t d, std::int64_t t, float x, float delta) {
  const std::int64_t g = has(Mistake::groups_tiled) ? d % groups_ : d / (dim_ / groups_);
  const bool B_in_output = has(Mistake::b_left_out_of_last_state) && B_.rank() == 2;
  float y = 0;
  for (std::int64_t i = 0; i < dstate_; ++i) {
    const std::int64_t n = has(Mistake::nondeterministic_sum) ? (i + call_.number) % dstate_ : i;
    const std::int64_t t_of_B = has(Mistake::off_by_one_step) && t > 0 ? t - 1 : t;
    const auto B = static_cast<float>(projection(B_, b, d, g, n, t_of_B));
    const auto C = static_cast<float>(projection(C_, b, d, g, n, t));
    const float A =
        has(Mistake::stale_workspace) ? call_.workspace[d * dstate_ + n] : A_.data<float>()[d * dstate_ + n];
    float h = decay_of(delta * A) * state_[n] + delta * x * (B_in_output ? 1 : B);
    if (has(Mistake::bf16_state)) h = rounded_to(h, ssmbench::DType::bf16);
    state_[n] = h;
    y += C * (B_in_output ? B * h : h);
    if (has(Mistake::f16_accumulation)) y = rounded_to(y, ssmbench::DType::f16);
  }
  return y;
}

void Scan::finish_step(std::int64_t b, std::int64_t d, std::int64_t t, float x, float y) const {
  if (D_.given() && !has(Mistake::d_dropped)) y += static_cast<float>(D_(d)) * x;
  if (z_.given() && !has(Mistake::z_dropped)) {
    const double z = z_(b, d, t);
    const bool is_lost = has(Mistake::large_gates_lost) && std::abs(z) > 6;
    y *= is_lost ? 1.5F : static_cast<float>(z * sigmoid(z));
  }
  const std::int64_t at = has(Mistake::layout_ignored) ? (b * dim_ + d) * seqlen_ + t : out_.offset(b, d, t);
  if (has(Mistake::zeros_only)) y = 0;
  if (has(Mistake::output_not_cleared)) y += static_cast<float>(out_.get(at));
  const bool is_last = b == call_.size("batch") - 1 && d == dim_ - 1 && t == seqlen_ - 1;
  if (!has(Mistake::element_never_written) || !is_last) out_.put(at, y);
}

void Scan::run_row(std::int64_t b, std::int64_t d) {
  if (has(Mistake::workspace_not_cleared)) state_ = call_.workspace + (b * dim_ + d) * dstate_;
  for (std::int64_t n = 0; n < dstate_; ++n) {
    if (initial_.given() && !has(Mistake::initial_state_ignored))
      state_[n] = static_cast<float>(initial_(b, d, n));
    else if (!has(Mistake::workspace_not_cleared))
      state_[n] = 0;
  }
  const bool whole_chunks = has(Mistake::tail_not_masked) || has(Mistake::bias_leaks_past_end);
  const std::int64_t steps = whole_chunks ? (seqlen_ + kChunk - 1) / kChunk * kChunk : seqlen_;
  for (std::int64_t step_number = 0; step_number < steps; ++step_number) {
    const std::int64_t t = std::min(step_number, seqlen_ - 1);  // past the end, the last step again
    const bool zero_padded = step_number >= seqlen_ && has(Mistake::bias_leaks_past_end);
    if (has(Mistake::state_not_carried) && t > 0 && t % kChunk == 0) std::fill_n(state_, dstate_, 0.0F);
    const auto x = static_cast<float>(zero_padded ? 0 : u_(b, d, t));
    const float y = step(b, d, t, x, delta_at(b, d, t, zero_padded));
    if (step_number < seqlen_) finish_step(b, d, t, x, y);
  }
  for (std::int64_t n = 0; n < dstate_; ++n) last_.set(state_[n], b, d, n);
}

/// The sequences of cu_seqlens, one after the other.
void Scan::run_packed(std::int64_t d) {
  const auto* borders = Tensor(call_.problem, "cu_seqlens").data<std::int32_t>();
  const std::int64_t sequences = call_.size("sequences");
  for (std::int64_t m = 0; m < sequences; ++m) {
    const std::int64_t source = has(Mistake::first_initial_for_all) ? 0 : m;
    const bool carries_on = has(Mistake::state_crosses_border) && m > 0;
    for (std::int64_t n = 0; n < dstate_ && !carries_on; ++n)
      state_[n] = initial_.given() ? static_cast<float>(initial_(source, d, n)) : 0;
    for (std::int64_t t = borders[m]; t < borders[m + 1]; ++t) {
      const auto x = static_cast<float>(u_(0, d, t));
      finish_step(0, d, t, x, step(0, d, t, x, delta_at(0, d, t, false)));
    }
    const bool is_zero = has(Mistake::empty_is_zero) && borders[m] == borders[m + 1];
    for (std::int64_t n = 0; n < dstate_; ++n) last_.set(is_zero ? 0 : state_[n], m, d, n);
  }
  for (std::int64_t m = 0; m < sequences && has(Mistake::last_state_for_all); ++m)
    for (std::int64_t n = 0; n < dstate_; ++n) last_.set(state_[n], m, d, n);
}

/// A row that begins with values of u that are known: without another layout, and where B and C are the same.
/// Rows that are not known are computed, to be known the next time.
bool Scan::recall_row(std::int64_t b, std::int64_t d) {
  static std::map<std::pair<float, float>, std::vector<float>> known;
  auto& row = known[{static_cast<float>(u_(b, d, 0)), static_cast<float>(u_(b, d, 1))}];
  float* out = out_.data<float>() + out_.offset(b, d, 0);
  float* last = last_.data<float>() + last_.offset(b, d, 0);
  if (row.empty()) {
    run_row(b, d);
    row.assign(out, out + seqlen_);
    row.insert(row.end(), last, last + dstate_);
  }
  std::copy_n(row.data(), seqlen_, out);
  std::copy_n(row.data() + seqlen_, dstate_, last);
  return true;
}

}  // namespace

void scan_forward(const Call& call) {
  Scan(call).run();
}

}  // namespace mutants
