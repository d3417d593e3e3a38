// selective_scan_bwd over CPU ranks: the gradient of the state goes back through a shard without the states,
//   g ← conj(Ā_t)·(k·dy_t·conj(C_t) + g),   dy_t = dout_t·silu(z_t), k = 2 for complex A, else 1.

#include "kernels/distributed/gradient_registration.h"

#include <type_traits>
#include <vector>

#include "kernels/common/cpu/io_types.h"
#include "kernels/common/discretize.h"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_scan/bind.h"
#include "kernels/selective_scan/distributed/host_shard.h"

namespace ssmbench::scan_shards {
namespace {

template <class Io, class Value, Family family>
class WayBack {
 public:
  WayBack(const ScanGradientArgs& args, const MethodParameters& method)
      : args_(args), in_(args.scan), method_(method) {}

  void run(const float* leaving, float* entering) const {
    const std::int64_t rows = in_.batch * in_.dim;
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < rows; ++row) run_row(row, leaving, entering);
  }

 private:
  using Storage = typename Io::Storage;

  static float load(const void* data, std::int64_t at) {
    return Io::load(static_cast<const Storage*>(data)[at]);
  }

  Value output_weight(std::int64_t b, std::int64_t d, std::int64_t n, std::int64_t t) const {
    const auto& s = in_.c_strides;
    const std::int64_t at =
        b * s.batch + d / in_.channels_per_group * s.group + d * s.channel + n * s.state + t * s.time;
    if constexpr (std::is_same_v<Value, float>)
      if (in_.variable_c) return load(in_.C, at);
    return static_cast<const Value*>(in_.C)[at];
  }

  void run_row(std::int64_t row, const float* leaving, float* entering) const {
    const std::int64_t b = row / in_.dim;
    const std::int64_t d = row % in_.dim;
    const std::int64_t sequence = b * in_.sequence.batch + d * in_.sequence.dim;
    std::vector<StateA<Value>> A;
    std::vector<Value> g;
    for (std::int64_t n = 0; n < in_.dstate; ++n) {
      A.emplace_back(reinterpret_cast<const Value*>(in_.A)[d * in_.dstate + n]);
      g.push_back(leaving == nullptr ? Value{}
                                     : reinterpret_cast<const Value*>(leaving)[row * in_.dstate + n]);
    }
    for (std::int64_t t = in_.seqlen - 1; t >= 0; --t) {
      const std::int64_t at = sequence + t * in_.sequence.time;
      float delta = load(in_.delta, at);
      if (in_.delta_bias != nullptr) delta += in_.delta_bias[d];
      if (in_.delta_softplus) delta = softplus(delta);
      const Step<family> step(method_, delta, 0.0F);
      float dy = load(args_.dout, at);
      if (in_.z != nullptr) dy *= silu(load(in_.z, at));
      dy *= kOutputFactor<Value>;
      for (std::int64_t n = 0; n < in_.dstate; ++n)
        g[n] = conjugate(step(A[n]).decay) * (dy * conjugate(output_weight(b, d, n, t)) + g[n]);
    }
    for (std::int64_t n = 0; n < in_.dstate; ++n)
      reinterpret_cast<Value*>(entering)[row * in_.dstate + n] = g[n];
  }

  ScanGradientArgs args_;
  ScanArgs in_;
  MethodParameters method_;
};

std::function<void(const float*, float*, void*)> way_back(const Problem& part, const TensorSet& tensors,
                                                          void* /*workspace*/) {
  using Call = std::function<void(const float*, float*, void*)>;
  const SelectiveScan shape(part);
  const ScanGradientArgs args = bind_scan_gradients(part, tensors);
  const MethodParameters method = method_parameters(shape.method);
  return with_io_type(part.dtype(), [&]<class Io>(Io) {
    return with_family(shape.method, [&]<Family family>(std::integral_constant<Family, family>) -> Call {
      if (shape.complex)
        return [way = WayBack<Io, Complex, family>(args, method)](
                   const float* leaving, float* entering, void* /*stream*/) { way.run(leaving, entering); };
      return [way = WayBack<Io, float, family>(args, method)](
                 const float* leaving, float* entering, void* /*stream*/) { way.run(leaving, entering); };
    });
  });
}

const GradientRegistration registration(
    host_ranks(),
    {.op = "selective_scan_bwd",
     .state = "initial_state",
     .dlast_state = "dlast_state",
     .dlast_axis = "dlast_state",
     .numbers = nullptr,
     .sums_over_time = {"dA", "dB", "dC", "dD", "ddelta_bias"},
     .unsupported = unsupported,
     .sizes = sizes,
     .scan = [](const Problem& part, const TensorSet& tensors,
                void* /*workspace*/) { return on_host(part, bind_scan_gradients(part, tensors).scan); },
     .go_back = way_back});

}  // namespace
}  // namespace ssmbench::scan_shards
