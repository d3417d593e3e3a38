// The mutants as a plugin: name, operation, mistake, and what they can do.

#include <string_view>

#include "mutants.h"

namespace mutants {
namespace {

struct Mutant {
  const char* name;
  const char* op;
  Mistake mistake;
};

constexpr const char* kScan = "selective_scan_fwd";
constexpr const char* kScanBackward = "selective_scan_bwd";
constexpr const char* kSsd = "ssd_chunk_scan_fwd";
constexpr const char* kSsdBackward = "ssd_chunk_scan_bwd";
constexpr const char* kUpdate = "selective_state_update";
constexpr const char* kReplay = "selective_state_replay";
constexpr const char* kLinear = "linear_scan";
constexpr const char* kMamba3 = "mamba3_siso_fwd";
constexpr const char* kConv = "causal_conv1d_fwd";
constexpr const char* kConvBackward = "causal_conv1d_bwd";
constexpr const char* kConvUpdate = "causal_conv1d_update";
constexpr const char* kMamba3Backward = "mamba3_siso_bwd";
constexpr const char* kMamba3Ranks = "mamba3_mimo_fwd";
constexpr const char* kMamba3Step = "mamba3_step";

constexpr Mutant kMutants[] = {
    {"mutant-none", kScan, Mistake::none},
    {"mutant-none", kScanBackward, Mistake::none},
    {"mutant-none", kSsd, Mistake::none},
    {"mutant-none", kSsdBackward, Mistake::none},
    {"mutant-none", kUpdate, Mistake::none},
    {"mutant-none", kReplay, Mistake::none},
    {"mutant-none", kLinear, Mistake::none},
    {"mutant-none", kMamba3, Mistake::none},
    {"mutant-none", kConv, Mistake::none},
    {"mutant-none", kConvBackward, Mistake::none},
    {"mutant-none", kConvUpdate, Mistake::none},
    {"mutant-none", kMamba3Backward, Mistake::none},
    {"mutant-none", kMamba3Ranks, Mistake::none},
    {"mutant-none", kMamba3Step, Mistake::none},
    {"mutant-state-not-carried", kScan, Mistake::state_not_carried},
    {"mutant-off-by-one-step", kScan, Mistake::off_by_one_step},
    {"mutant-tail-not-masked", kScan, Mistake::tail_not_masked},
    {"mutant-bias-leaks-past-end", kScan, Mistake::bias_leaks_past_end},
    {"mutant-groups-tiled", kScan, Mistake::groups_tiled},
    {"mutant-D-dropped", kScan, Mistake::d_dropped},
    {"mutant-z-dropped", kScan, Mistake::z_dropped},
    {"mutant-bias-after-softplus", kScan, Mistake::bias_after_softplus},
    {"mutant-layout-ignored", kScan, Mistake::layout_ignored},
    {"mutant-B-left-out-of-last-state", kScan, Mistake::b_left_out_of_last_state},
    {"mutant-initial-state-ignored", kScan, Mistake::initial_state_ignored},
    {"mutant-state-crosses-border", kScan, Mistake::state_crosses_border},
    {"mutant-first-initial-for-all", kScan, Mistake::first_initial_for_all},
    {"mutant-last-state-for-all", kScan, Mistake::last_state_for_all},
    {"mutant-empty-is-zero", kScan, Mistake::empty_is_zero},
    {"mutant-exponent-clamped", kScan, Mistake::exponent_clamped},
    {"mutant-exp-biased", kScan, Mistake::exp_biased},
    {"mutant-softplus-overflows", kScan, Mistake::softplus_overflows},
    {"mutant-large-steps-lost", kScan, Mistake::large_steps_lost},
    {"mutant-large-gates-lost", kScan, Mistake::large_gates_lost},
    {"mutant-f16-accumulation", kScan, Mistake::f16_accumulation},
    {"mutant-bf16-state", kScan, Mistake::bf16_state},
    {"mutant-zeros-only", kScan, Mistake::zeros_only},
    {"mutant-element-never-written", kScan, Mistake::element_never_written},
    {"mutant-output-not-cleared", kScan, Mistake::output_not_cleared},
    {"mutant-write-past-end", kScan, Mistake::write_past_end},
    {"mutant-input-modified", kScan, Mistake::input_modified},
    {"mutant-workspace-not-cleared", kScan, Mistake::workspace_not_cleared},
    {"mutant-stale-workspace", kScan, Mistake::stale_workspace},
    {"mutant-wrong-from-tenth-call", kScan, Mistake::wrong_from_tenth_call},
    {"mutant-race-on-one-element", kScan, Mistake::race_on_one_element},
    {"mutant-nondeterministic-sum", kScan, Mistake::nondeterministic_sum},
    {"mutant-result-kept", kScan, Mistake::result_kept},
    {"mutant-rows-remembered", kScan, Mistake::rows_remembered},
    {"mutant-eighth-unless-new", kScan, Mistake::eighth_unless_new},
    {"mutant-eighth-when-pinned", kScan, Mistake::eighth_when_pinned},
    {"mutant-result-by-pointer", kScan, Mistake::result_by_pointer},
    {"mutant-result-in-workspace", kScan, Mistake::result_in_workspace},
    {"mutant-late-thread", kScan, Mistake::late_thread},
    {"mutant-eighth-unless-known-inputs", kScan, Mistake::eighth_unless_known_inputs},
    {"mutant-eighth-by-stack", kScan, Mistake::eighth_by_stack},
    {"mutant-eighth-after-pause", kScan, Mistake::eighth_after_pause},
    {"mutant-lottery", kScan, Mistake::lottery},
    {"mutant-work-in-signal-handler", kScan, Mistake::work_in_signal_handler},
    {"mutant-lazy-pages", kScan, Mistake::lazy_pages},
    {"mutant-silu-derivative", kScanBackward, Mistake::silu_derivative},
    {"mutant-softplus-derivative", kScanBackward, Mistake::softplus_derivative},
    {"mutant-dA-of-one-batch-lost", kScanBackward, Mistake::da_of_one_batch_lost},
    {"mutant-dB-not-summed-over-group", kScanBackward, Mistake::db_not_summed_over_group},
    {"mutant-dlast-state-ignored", kScanBackward, Mistake::dlast_state_ignored},
    {"mutant-x-ignored", kScanBackward, Mistake::x_ignored},
    {"mutant-chunk-state-not-decayed", kSsd, Mistake::chunk_state_not_decayed},
    {"mutant-seq-idx-ignored", kSsd, Mistake::seq_idx_ignored},
    {"mutant-dt-limit-ignored", kSsd, Mistake::dt_limit_ignored},
    {"mutant-state-crosses-border", kSsd, Mistake::state_crosses_border},
    {"mutant-first-initial-for-all", kSsd, Mistake::first_initial_for_all},
    {"mutant-decay-from-chunk", kSsd, Mistake::decay_from_chunk},
    {"mutant-last-state-for-all", kSsd, Mistake::last_state_for_all},
    {"mutant-empty-takes-last", kSsd, Mistake::empty_takes_last},
    {"mutant-empty-is-zero", kSsd, Mistake::empty_is_zero},
    {"mutant-stop-at-chunk-end", kSsd, Mistake::stop_at_chunk_end},
    {"mutant-stop-before-step", kSsd, Mistake::stop_before_step},
    {"mutant-dt-limit-gradient-not-cut", kSsdBackward, Mistake::dt_limit_gradient_not_cut},
    {"mutant-dfinal-states-ignored", kSsdBackward, Mistake::dfinal_states_ignored},
    {"mutant-state-not-updated", kUpdate, Mistake::state_not_updated},
    {"mutant-source-for-destination", kUpdate, Mistake::source_for_destination},
    {"mutant-padding-stored", kUpdate, Mistake::padding_stored},
    {"mutant-state-rounded-between-tokens", kUpdate, Mistake::state_rounded_between_tokens},
    {"mutant-first-destination-only", kUpdate, Mistake::first_destination_only},
    {"mutant-row-for-slot", kUpdate, Mistake::row_for_slot},
    {"mutant-scale-kept", kUpdate, Mistake::scale_kept},
    {"mutant-padding-has-scale", kUpdate, Mistake::padding_has_scale},
    {"mutant-toward-zero", kUpdate, Mistake::toward_zero},
    {"mutant-rounded-up", kUpdate, Mistake::rounded_up},
    {"mutant-share-squared", kUpdate, Mistake::share_squared},
    {"mutant-draw-shared", kUpdate, Mistake::draw_shared},
    {"mutant-subnormals-flushed", kUpdate, Mistake::subnormals_flushed},
    {"mutant-ring-from-row-zero", kReplay, Mistake::ring_from_row_zero},
    {"mutant-counted-from-newest", kReplay, Mistake::counted_from_newest},
    {"mutant-checkpoint-after-new", kReplay, Mistake::checkpoint_after_new},
    {"mutant-checkpoint-stored-always", kReplay, Mistake::checkpoint_stored_always},
    {"mutant-appended-at-count", kReplay, Mistake::appended_at_count},
    {"mutant-raw-dt-in-ring", kReplay, Mistake::raw_dt_in_ring},
    {"mutant-decay-of-step-before", kLinear, Mistake::decay_of_step_before},
    {"mutant-pi-missing", kMamba3, Mistake::pi_missing},
    {"mutant-tanh-missing", kMamba3, Mistake::tanh_missing},
    {"mutant-wrong-pairing", kMamba3, Mistake::wrong_pairing},
    {"mutant-rotation-before-bias", kMamba3, Mistake::rotation_before_bias},
    {"mutant-scale-on-diagonal", kMamba3, Mistake::scale_on_diagonal},
    {"mutant-next-chunk-ignored", kMamba3, Mistake::next_chunk_ignored},
    {"mutant-lambda-of-step-before", kMamba3, Mistake::lambda_of_step_before},
    {"mutant-angles-cross-borders", kMamba3, Mistake::angles_cross_borders},
    {"mutant-last-V-for-all", kMamba3, Mistake::last_v_for_all},
    {"mutant-taps-reversed", kConv, Mistake::taps_reversed},
    {"mutant-taps-cross-borders", kConv, Mistake::taps_cross_borders},
    {"mutant-padding-has-bias", kConv, Mistake::padding_has_bias},
    {"mutant-final-states-from-zero", kConv, Mistake::final_states_from_zero},
    {"mutant-dfinal-cut-at-start", kConvBackward, Mistake::dfinal_cut_at_start},
    {"mutant-dweight-without-states", kConvBackward, Mistake::dweight_without_states},
    {"mutant-destination-ignored", kConvUpdate, Mistake::destination_ignored},
    {"mutant-pads-written", kConvUpdate, Mistake::pads_written},
    {"mutant-shifted-by-one", kConvUpdate, Mistake::shifted_by_one},
    {"mutant-angles-not-summed", kMamba3Backward, Mistake::angles_not_summed},
    {"mutant-tanh-slope-missing", kMamba3Backward, Mistake::tanh_slope_missing},
    {"mutant-dDT-without-angles", kMamba3Backward, Mistake::ddt_without_angles},
    {"mutant-dTrap-of-own-input", kMamba3Backward, Mistake::dtrap_of_own_input},
    {"mutant-dK-not-turned-back", kMamba3Backward, Mistake::dk_not_turned_back},
    {"mutant-dFinal-SSM-ignored", kMamba3Backward, Mistake::final_ssm_ignored},
    {"mutant-dFinal-K-ignored", kMamba3Backward, Mistake::final_k_ignored},
    {"mutant-dQ-not-summed-over-group", kMamba3Backward, Mistake::dq_not_summed_over_group},
    {"mutant-ranks-apart-on-diagonal", kMamba3Ranks, Mistake::ranks_apart_on_diagonal},
    {"mutant-MIMO-Z-dropped", kMamba3Ranks, Mistake::mimo_z_dropped},
    {"mutant-V-state-ignored", kMamba3Step, Mistake::v_state_ignored},
    {"mutant-K-state-not-updated", kMamba3Step, Mistake::k_state_not_updated},
};
constexpr std::size_t kCount = std::size(kMutants);

/// Each claims f32 arithmetic, and to be deterministic.
const ssmbench_plugin& description() {
  static std::array<ssmbench_implementation, kCount> implementations;
  for (std::size_t i = 0; i < kCount; ++i)
    implementations[i] = {kMutants[i].name, kMutants[i].op, "test of the checks", SSMBENCH_CPU, 1, {}, {}};
  static const ssmbench_plugin plugin{SSMBENCH_PLUGIN_ABI_VERSION, static_cast<std::int32_t>(kCount),
                                      implementations.data(), 0};
  return plugin;
}

struct Bound {
  std::size_t index;
  const ssmbench_problem& problem;
  float* workspace;
};

/// Those of watched.cpp.
bool is_watched(Mistake mistake) {
  return mistake >= Mistake::result_by_pointer && mistake <= Mistake::lazy_pages;
}

void run(std::string_view op, const Call& call) {
  if (op == kScan) is_watched(call.mistake) ? watched_scan(call) : scan_forward(call);
  if (op == kScanBackward) scan_backward(call);
  if (op == kSsd) ssd_forward(call);
  if (op == kSsdBackward) ssd_backward(call);
  if (op == kUpdate) state_update(call);
  if (op == kReplay) state_replay(call);
  if (op == kLinear) linear_scan(call);
  if (op == kMamba3) mamba3_forward(call);
  if (op == kConv) conv_forward(call);
  if (op == kConvBackward) conv_backward(call);
  if (op == kConvUpdate) conv_update(call);
  if (op == kMamba3Backward) mamba3_backward(call);
  if (op == kMamba3Ranks || op == kMamba3Step) mamba3_ranks(call, op == kMamba3Step);
}

}  // namespace
}  // namespace mutants

SSMBENCH_EXPORT const ssmbench_plugin* ssmbench_plugin_describe() {
  return &mutants::description();
}

SSMBENCH_EXPORT const char* ssmbench_plugin_unsupported(int32_t, const ssmbench_problem* problem) {
  if (ssmbench_find(problem, "u") != nullptr) {
    if (!ssmbench_is(problem, "method", "zoh")) return "has method zoh only";
    if (!ssmbench_is(problem, "A", "real")) return "has real A only";
  }
  if (ssmbench_is(problem, "form", "mamba2")) return "has form mamba1 only";
  return nullptr;
}

SSMBENCH_EXPORT int64_t ssmbench_plugin_workspace_bytes(int32_t index, const ssmbench_problem* problem) {
  const std::int64_t channels = ssmbench_integer(problem, "batch") * ssmbench_integer(problem, "dim");
  const std::int64_t dstate = ssmbench_integer(problem, "dstate");
  const bool keeps_results =
      mutants::kMutants[static_cast<std::size_t>(index)].mistake == mutants::Mistake::result_in_workspace;
  const std::int64_t results =
      keeps_results ? 2 * 4 + 4 * channels * (ssmbench_integer(problem, "seqlen") + dstate) : 0;
  return 4 * channels * dstate + results;
}

SSMBENCH_EXPORT const char* ssmbench_plugin_bind(int32_t index, const ssmbench_problem* problem,
                                                 void* workspace, void** handle) {
  *handle = new mutants::Bound{static_cast<std::size_t>(index), *problem, static_cast<float*>(workspace)};
  return nullptr;
}

SSMBENCH_EXPORT const char* ssmbench_plugin_launch(void* handle, void*) {
  static std::array<int, mutants::kCount> calls;
  const auto& bound = *static_cast<const mutants::Bound*>(handle);
  const mutants::Mutant& mutant = mutants::kMutants[bound.index];
  mutants::run(mutant.op, {bound.problem, mutant.mistake, bound.workspace, ++calls[bound.index]});
  return nullptr;
}

SSMBENCH_EXPORT void ssmbench_plugin_release(void* handle) {
  delete static_cast<mutants::Bound*>(handle);
}
