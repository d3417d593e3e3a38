#include "kernels/selective_scan/distributed/host_shard.h"

#include "kernels/common/cpu/io_types.h"
#include "kernels/common/discretize.h"
#include "kernels/common/scalar_math.h"
#include "kernels/distributed/passing_registrations.h"
#include "kernels/distributed/state_passing.h"
#include "kernels/selective_scan/bind.h"
#include "kernels/selective_scan/cpu/scans.h"
#include "kernels/selective_scan/distributed/passed_states.h"
#include "kernels/selective_scan/distributed/steps_of.h"
#include "kernels/selective_scan/sequences.h"

namespace ssmbench::scan_shards {
namespace {

template <class Value>
class HostScanShard : public HostScan {
 public:
  HostScanShard(const Problem& part, const ScanArgs& args)
      : HostScan(scan_shards::sizes(part)),
        shape_(part),
        io_(part.dtype()),
        args_(args),
        scan_(not_real_zoh(part) ? scalar_scan(shape_, io_) : simd_scan(args_, io_)) {}

  const float* initial_state() const override { return args_.initial_state; }
  float* last_state() const override { return args_.last_state; }

  void run(IndexRange range, const float* entering, float* leaving, bool outputs, void* /*stream*/) override {
    ScanArgs args = steps_of(args_, range, io_, shape_.complex);
    if (!outputs) args.out = nullptr;
    args.initial_state = entering;
    args.last_state = leaving;
    scan_(args);
  }

  void begin_summary(float* summary, bool decays, void* /*stream*/) override {
    if (!decays) return;
    with_io_type(io_, [&]<class Io>(Io) {
      const std::int64_t rows = args_.batch * args_.dim;
#pragma omp parallel for schedule(static)
      for (std::int64_t row = 0; row < rows; ++row) {
        if (is_bilinear(shape_.method))
          multiply_decays<Io>(row, reinterpret_cast<Value*>(summary) + row * args_.dstate);
        else
          add_steps<Io>(row, summary + 2 * row);
      }
    });
  }

  void enter(Payloads payloads, int rank, float* state, void* /*stream*/) override {
    const PassedStates<Value> passed = passed_states(payloads);
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < states(); ++i) passed.enter(rank, i, state);
  }

  void enter_from_after(Payloads payloads, std::int64_t carries, int rank, int ranks, float* gradient,
                        void* /*stream*/) override {
    const PassedStates<Value> passed = passed_states(payloads);
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < states(); ++i) passed.enter_from_after(carries, rank, ranks, i, gradient);
  }

 private:
  std::int64_t states() const {
    return args_.batch * args_.dim * args_.dstate;
  }
  Value decay_rate(std::int64_t d, std::int64_t n) const {
    return reinterpret_cast<const Value*>(args_.A)[d * args_.dstate + n];
  }
  PassedStates<Value> passed_states(Payloads payloads) const {
    return {args_.A, args_.dim, args_.dstate, is_bilinear(shape_.method), sizes().state_floats, payloads};
  }

  /// Calls function(Δ) for the steps of a row, which counts (batch, channel).
  template <class Io, class Function>
  void for_each_step(std::int64_t row, const Function& function) const {
    const std::int64_t d = row % args_.dim;
    const auto* delta = static_cast<const typename Io::Storage*>(args_.delta) +
                        row / args_.dim * args_.sequence.batch + d * args_.sequence.dim;
    for (std::int64_t t = 0; t < args_.seqlen; ++t) {
      float step = Io::load(delta[t * args_.sequence.time]);
      if (args_.delta_bias != nullptr) step += args_.delta_bias[d];
      if (args_.delta_softplus) step = softplus(step);
      function(step);
    }
  }

  template <class Io>
  void add_steps(std::int64_t row, float* sum) const {
    double total = 0;
    for_each_step<Io>(row, [&](float step) { total += step; });
    sum[0] = static_cast<float>(total);
    sum[1] = static_cast<float>(total - sum[0]);
  }

  template <class Io>
  void multiply_decays(std::int64_t row, Value* products) const {
    const MethodParameters method = method_parameters(shape_.method);
    for (std::int64_t n = 0; n < args_.dstate; ++n) {
      const StateA<Value> state(decay_rate(row % args_.dim, n));
      Wide<Value> all = widen(Value{} + 1.0F);
      for_each_step<Io>(row, [&](float delta) {
        all = product(all, widen(Step<Family::bilinear>(method, delta, 0.0F)(state).decay));
      });
      narrow(all, products[n]);
    }
  }

  SelectiveScan shape_;
  DType io_;
  ScanArgs args_;
  ScanCall scan_;
};

}  // namespace

ShardSizes sizes(const Problem& part) {
  const SelectiveScan scan(part);
  const std::int64_t states = scan.batch * scan.dim * scan.dstate * (scan.complex ? 2 : 1);
  return {.steps = scan.seqlen,
          .state_floats = states,
          .summary_floats = is_bilinear(scan.method) ? states : 2 * scan.batch * scan.dim};
}

std::unique_ptr<LocalScan> on_host(const Problem& part, const TensorSet& tensors) {
  return on_host(part, bind_scan(part, tensors));
}

std::unique_ptr<LocalScan> on_host(const Problem& part, const ScanArgs& args) {
  if (SelectiveScan(part).complex) return std::make_unique<HostScanShard<Complex>>(part, args);
  return std::make_unique<HostScanShard<float>>(part, args);
}

std::optional<std::string> unsupported(const Problem& whole) {
  if (auto reason = not_diagonal(whole)) return reason;
  if (auto reason = packs_sequences(whole)) return reason;
  if (auto reason = has_no_x(whole)) return reason;
  const MethodId method = SelectiveScan(whole).method;
  if (method == MethodId::foh_exact || method == MethodId::trapezoidal)
    return "passes states alone, and a method of two samples needs the last input beside them";
  return {};
}

namespace {

const PassingRegistrations registrations(host_ranks(),
                                         {.op = "selective_scan_fwd",
                                          .last_state = "last_state",
                                          .unsupported = unsupported,
                                          .sizes = sizes,
                                          .shard = [](const Problem& part, const TensorSet& tensors,
                                                      void* /*workspace*/) { return on_host(part, tensors); },
                                          .stops = host_stops});

}  // namespace
}  // namespace ssmbench::scan_shards
