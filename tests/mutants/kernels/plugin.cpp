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
constexpr const char* kLinear = "linear_scan";
constexpr const char* kMamba3 = "mamba3_siso_fwd";

constexpr Mutant kMutants[] = {
    {"mutant-none", kScan, Mistake::none},
    {"mutant-none", kScanBackward, Mistake::none},
    {"mutant-none", kSsd, Mistake::none},
    {"mutant-none", kSsdBackward, Mistake::none},
    {"mutant-none", kUpdate, Mistake::none},
    {"mutant-none", kLinear, Mistake::none},
    {"mutant-none", kMamba3, Mistake::none},
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
    {"mutant-silu-derivative", kScanBackward, Mistake::silu_derivative},
    {"mutant-softplus-derivative", kScanBackward, Mistake::softplus_derivative},
    {"mutant-dA-of-one-batch-lost", kScanBackward, Mistake::da_of_one_batch_lost},
    {"mutant-dB-not-summed-over-group", kScanBackward, Mistake::db_not_summed_over_group},
    {"mutant-chunk-state-not-decayed", kSsd, Mistake::chunk_state_not_decayed},
    {"mutant-seq-idx-ignored", kSsd, Mistake::seq_idx_ignored},
    {"mutant-dt-limit-ignored", kSsd, Mistake::dt_limit_ignored},
    {"mutant-dt-limit-gradient-not-cut", kSsdBackward, Mistake::dt_limit_gradient_not_cut},
    {"mutant-dfinal-states-ignored", kSsdBackward, Mistake::dfinal_states_ignored},
    {"mutant-state-not-updated", kUpdate, Mistake::state_not_updated},
    {"mutant-source-for-destination", kUpdate, Mistake::source_for_destination},
    {"mutant-padding-stored", kUpdate, Mistake::padding_stored},
    {"mutant-state-rounded-between-tokens", kUpdate, Mistake::state_rounded_between_tokens},
    {"mutant-first-destination-only", kUpdate, Mistake::first_destination_only},
    {"mutant-row-for-slot", kUpdate, Mistake::row_for_slot},
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
};
constexpr std::size_t kCount = std::size(kMutants);

/// Each claims f32 arithmetic, and to be deterministic.
const ssmbench_plugin& description() {
  static std::array<ssmbench_implementation, kCount> implementations;
  for (std::size_t i = 0; i < kCount; ++i)
    implementations[i] = {kMutants[i].name, kMutants[i].op, "test of the checks", SSMBENCH_CPU, 1, {}, {}};
  static const ssmbench_plugin plugin{SSMBENCH_PLUGIN_ABI_VERSION, static_cast<std::int32_t>(kCount),
                                      implementations.data()};
  return plugin;
}

bool is_watched(Mistake mistake) {
  return mistake == Mistake::result_by_pointer || mistake == Mistake::result_in_workspace ||
         mistake == Mistake::late_thread;
}

void run(std::string_view op, const Call& call) {
  if (op == kScan) is_watched(call.mistake) ? watched_scan(call) : scan_forward(call);
  if (op == kScanBackward) scan_backward(call);
  if (op == kSsd) ssd_forward(call);
  if (op == kSsdBackward) ssd_backward(call);
  if (op == kUpdate) state_update(call);
  if (op == kLinear) linear_scan(call);
  if (op == kMamba3) mamba3_forward(call);
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

SSMBENCH_EXPORT const char* ssmbench_plugin_launch(int32_t index, const ssmbench_problem* problem,
                                                   void* workspace, void*) {
  static std::array<int, mutants::kCount> calls;
  const auto which = static_cast<std::size_t>(index);
  mutants::run(mutants::kMutants[which].op,
               {*problem, mutants::kMutants[which].mistake, static_cast<float*>(workspace), ++calls[which]});
  return nullptr;
}
