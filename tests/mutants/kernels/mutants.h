#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "model/dtype.h"
#include "plugins/ssmbench_plugin.h"

// Kernels with one honest mistake each, to see that the checks find it (tests/mutants/README.md). There is
// one plain implementation per operation; a mistake is a branch in it.

namespace mutants {

/// In the order of the table in README.md, which says what each does.
enum class Mistake {
  none,
  // selective_scan_fwd
  state_not_carried,
  off_by_one_step,
  tail_not_masked,
  bias_leaks_past_end,
  groups_tiled,
  d_dropped,
  z_dropped,
  bias_after_softplus,
  layout_ignored,
  b_left_out_of_last_state,
  initial_state_ignored,
  exponent_clamped,
  exp_biased,
  softplus_overflows,
  large_steps_lost,
  large_gates_lost,
  f16_accumulation,
  bf16_state,
  zeros_only,
  element_never_written,
  output_not_cleared,
  write_past_end,
  input_modified,
  workspace_not_cleared,
  stale_workspace,
  wrong_from_tenth_call,
  race_on_one_element,
  nondeterministic_sum,
  result_kept,
  rows_remembered,
  eighth_unless_new,
  eighth_when_pinned,
  result_by_pointer,
  result_in_workspace,
  late_thread,
  eighth_unless_known_inputs,
  eighth_by_stack,
  eighth_after_pause,
  lottery,
  work_in_signal_handler,
  lazy_pages,
  // selective_scan_bwd
  silu_derivative,
  softplus_derivative,
  da_of_one_batch_lost,
  db_not_summed_over_group,
  dlast_state_ignored,
  x_ignored,
  // ssd_chunk_scan_fwd
  chunk_state_not_decayed,
  seq_idx_ignored,
  dt_limit_ignored,
  state_crosses_border,
  first_initial_for_all,
  decay_from_chunk,
  last_state_for_all,
  empty_takes_last,
  empty_is_zero,
  stop_at_chunk_end,
  stop_before_step,
  // ssd_chunk_scan_bwd
  dt_limit_gradient_not_cut,
  dfinal_states_ignored,
  // selective_state_update
  state_not_updated,
  source_for_destination,
  padding_stored,
  state_rounded_between_tokens,
  first_destination_only,
  row_for_slot,
  scale_kept,
  padding_has_scale,
  toward_zero,
  rounded_up,
  share_squared,
  draw_shared,
  subnormals_flushed,
  // selective_state_replay
  ring_from_row_zero,
  counted_from_newest,
  checkpoint_after_new,
  checkpoint_stored_always,
  appended_at_count,
  raw_dt_in_ring,
  // linear_scan
  decay_of_step_before,
  // mamba3_siso_fwd
  pi_missing,
  tanh_missing,
  wrong_pairing,
  rotation_before_bias,
  scale_on_diagonal,
  next_chunk_ignored,
  lambda_of_step_before,
  angles_cross_borders,
  last_v_for_all,
  // causal_conv1d_fwd
  taps_reversed,
  taps_cross_borders,
  padding_has_bias,
  final_states_from_zero,
  // causal_conv1d_bwd
  dfinal_cut_at_start,
  dweight_without_states,
  // causal_conv1d_update
  destination_ignored,
  pads_written,
  shifted_by_one,
  // mamba3_siso_bwd
  angles_not_summed,
  tanh_slope_missing,
  ddt_without_angles,
  dtrap_of_own_input,
  dk_not_turned_back,
  final_ssm_ignored,
  final_k_ignored,
  dq_not_summed_over_group,
  // mamba3_mimo_fwd
  ranks_apart_on_diagonal,
  mimo_z_dropped,
  // mamba3_step
  v_state_ignored,
  k_state_not_updated,
};

struct Call {
  const ssmbench_problem& problem;
  Mistake mistake;
  float* workspace;
  int number;  ///< 1, 2, … of this mutant

  bool has(Mistake which) const { return mistake == which; }
  std::int64_t size(const char* axis) const { return ssmbench_integer(&problem, axis); }
  bool flag(const char* axis) const { return size(axis) != 0; }
};

/// A tensor by its logical indices, in double whatever it is stored in.
class Tensor {
 public:
  Tensor(const ssmbench_problem& problem, const char* name) : tensor_(ssmbench_find(&problem, name)) {}

  bool given() const { return tensor_ != nullptr; }
  int rank() const { return tensor_->rank; }
  template <class Value>
  Value* data() const {
    return static_cast<Value*>(tensor_->data);
  }
  template <class... Index>
  std::int64_t offset(Index... index) const {
    const std::array<std::int64_t, sizeof...(index)> all{index...};
    std::int64_t sum = 0;
    for (std::size_t axis = 0; axis < all.size(); ++axis) sum += all[axis] * tensor_->strides[axis];
    return sum;
  }
  double get(std::int64_t at) const { return ssmbench::load_as_double(tensor_->data, at, dtype()); }
  void put(std::int64_t at, double value) const {
    ssmbench::store_from_double(tensor_->data, at, dtype(), value);
  }
  template <class... Index>
  double operator()(Index... index) const {
    return get(offset(index...));
  }
  template <class... Index>
  void set(double value, Index... index) const {
    put(offset(index...), value);
  }

  ssmbench::DType dtype() const { return static_cast<ssmbench::DType>(tensor_->dtype); }  // the same order

 private:
  const ssmbench_tensor* tensor_;
};

/// Sums of a tensor that several rows add to.
class Sums {
 public:
  Sums(const ssmbench_problem& problem, const char* name) : tensor_(problem, name) {
    if (!tensor_.given()) return;
    const ssmbench_tensor* shape = ssmbench_find(&problem, name);
    std::int64_t count = 1;
    for (int axis = 0; axis < shape->rank; ++axis) count *= shape->shape[axis];
    values_.resize(static_cast<std::size_t>(count));
  }
  template <class... Index>
  double& at(Index... index) {
    return values_[static_cast<std::size_t>(tensor_.offset(index...))];
  }
  bool given() const { return tensor_.given(); }
  int rank() const { return tensor_.rank(); }
  void store() const {
    for (std::size_t i = 0; i < values_.size(); ++i) tensor_.put(static_cast<std::int64_t>(i), values_[i]);
  }

 private:
  Tensor tensor_;
  std::vector<double> values_;
};

/// B or C of Mamba-1's scan: (D, N), or (B, G, N, L).
inline double projection(const Tensor& tensor, std::int64_t b, std::int64_t d, std::int64_t g, std::int64_t n,
                         std::int64_t t) {
  return tensor.rank() == 2 ? tensor(d, n) : tensor(b, g, n, t);
}

inline double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
inline double softplus(double x) {
  return x > 40 ? x : std::log1p(std::exp(x));
}

void scan_forward(const Call& call);
void watched_scan(const Call& call);
/// Whether this launch computes an eighth of the channels, for it believes that nobody looks.
bool is_lazy(const Call& call);
void scan_backward(const Call& call);
void ssd_forward(const Call& call);
void ssd_backward(const Call& call);
void state_update(const Call& call);
void state_replay(const Call& call);
void linear_scan(const Call& call);
void mamba3_forward(const Call& call);
void conv_forward(const Call& call);
void conv_backward(const Call& call);
void conv_update(const Call& call);
void mamba3_backward(const Call& call);
void mamba3_ranks(const Call& call, bool is_step);

}  // namespace mutants
