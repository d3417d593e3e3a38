// The summary of a shard is made of its steps Δ: the decays of all methods but the bilinear ones are e^(Δ·A),
// whose product over a shard is e^(A·ΣΔ). The sum is kept as two floats, of each channel, since A multiplies
// its error. The bilinear methods keep the product of decays itself, one per state.

#include "kernels/selective_scan/distributed/host_shard.h"

#include <cmath>
#include <complex>
#include <type_traits>

#include "kernels/common/cpu/io_types.h"
#include "kernels/common/discretize.h"
#include "kernels/common/scalar_math.h"
#include "kernels/distributed/host_registrations.h"
#include "kernels/selective_scan/bind.h"
#include "kernels/selective_scan/cpu/scans.h"
#include "kernels/selective_scan/sequences.h"

namespace ssmbench::scan_shards {
namespace {

bool is_bilinear(MethodId method) {
  return method == MethodId::bilinear || method == MethodId::bilinear_flipped;
}

/// The doubles that products of a shard's decays are taken in: rounded once, where they become a state.
template <class Value>
using Wide = std::conditional_t<std::is_same_v<Value, Complex>, std::complex<double>, double>;

double widen(float x) {
  return x;
}
std::complex<double> widen(Complex x) {
  return {x.re, x.im};
}
double conjugate_of(double x) {
  return x;
}
std::complex<double> conjugate_of(std::complex<double> x) {
  return std::conj(x);
}
void narrow(double x, float& to) {
  to = static_cast<float>(x);
}
void narrow(std::complex<double> x, Complex& to) {
  to = {static_cast<float>(x.real()), static_cast<float>(x.imag())};
}

const void* after(const void* data, std::int64_t bytes) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + bytes;
}
void* after(void* data, std::int64_t bytes) {
  return data == nullptr ? nullptr : static_cast<std::byte*>(data) + bytes;
}

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

  void run(IndexRange range, const float* entering, float* leaving, bool outputs,
           const RerunProgress* progress, void* /*stream*/) override {
    if (progress != nullptr && progress->done != 0) return;
    ScanArgs args = args_;
    args.seqlen = range.count();
    const auto element = static_cast<std::int64_t>(size_of(io_));
    const std::int64_t of_sequence = range.begin * args.sequence.time * element;
    const std::int64_t of_projection = shape_.complex ? std::int64_t{sizeof(Complex)} : element;
    args.u = after(args.u, of_sequence);
    args.delta = after(args.delta, of_sequence);
    args.z = after(args.z, of_sequence);
    args.out = outputs ? after(args.out, of_sequence) : nullptr;
    args.B = after(args.B, range.begin * args.b_strides.time * of_projection);  // constant: stride 0
    args.C = after(args.C, range.begin * args.c_strides.time * of_projection);
    args.initial_state = entering;
    args.last_state = leaving;
    scan_(args);
  }

  void summarize(float* summary, void* /*stream*/) override {
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

  void enter(Payloads payloads, int rank, float* state, RerunProgress* progress, void* /*stream*/) override {
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < states(); ++i) {
      Wide<Value> h = state_of(payloads.of(0), i);
      for (int q = 1; q < rank; ++q)
        h = passed(h, decay_of(summary_of(payloads, q), i)) + state_of(payloads.of(q), i);
      narrow(h, reinterpret_cast<Value*>(state)[i]);
    }
    begin_second_pass(state, progress);
  }

  void enter_from_after(Payloads payloads, std::int64_t carries, int rank, int ranks, float* gradient,
                        void* /*stream*/) override {
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < states(); ++i) {
      Wide<Value> g = state_of(payloads.of(ranks - 1) + carries, i);
      for (int q = ranks - 2; q > rank; --q)
        g = passed(g, conjugate_of(decay_of(summary_of(payloads, q), i))) +
            state_of(payloads.of(q) + carries, i);
      narrow(g, reinterpret_cast<Value*>(gradient)[i]);
    }
  }

 private:
  std::int64_t states() const {
    return args_.batch * args_.dim * args_.dstate;
  }
  Value decay_rate(std::int64_t d, std::int64_t n) const {
    return reinterpret_cast<const Value*>(args_.A)[d * args_.dstate + n];
  }

  const float* summary_of(Payloads payloads, int rank) const {
    return payloads.of(rank) + sizes().state_floats;
  }
  static Wide<Value> state_of(const float* states, std::int64_t i) {
    return widen(reinterpret_cast<const Value*>(states)[i]);
  }
  /// A state that is 0 stays so, and is not multiplied by a decay that overflows.
  static Wide<Value> passed(Wide<Value> state, Wide<Value> decay) {
    return state == Wide<Value>() ? state : decay * state;
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
      Wide<Value> product(1);
      for_each_step<Io>(row, [&](float delta) {
        product *= widen(Step<Family::bilinear>(method, delta, 0.0F)(state).decay);
      });
      narrow(product, products[n]);
    }
  }

  /// The product of a shard's decays of state i.
  Wide<Value> decay_of(const float* summary, std::int64_t i) const {
    if (is_bilinear(shape_.method)) return widen(reinterpret_cast<const Value*>(summary)[i]);
    const float* sum = summary + i / args_.dstate * 2;
    const double delta = static_cast<double>(sum[0]) + static_cast<double>(sum[1]);
    return std::exp(delta * widen(decay_rate(i / args_.dstate % args_.dim, i % args_.dstate)));
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
  const MethodId method = SelectiveScan(whole).method;
  if (method == MethodId::foh_exact || method == MethodId::trapezoidal)
    return "passes states alone, and a method of two samples needs the last input beside them";
  return {};
}

namespace {

const HostRegistrations registrations({.op = "selective_scan_fwd",
                                       .last_state = "last_state",
                                       .unsupported = unsupported,
                                       .sizes = sizes,
                                       .shard = [](const Problem& part, const TensorSet& tensors) {
                                         return on_host(part, tensors);
                                       }});

}  // namespace
}  // namespace ssmbench::scan_shards
