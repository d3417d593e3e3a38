// ssd_chunk_scan_bwd over CPU ranks: the gradient of the state goes back through a shard without the states,
//   g ← e^(Δ_t·A)·(dy_t ⊗ C_t + g),   dy_t = dout_t·silu(z_t), and g ← 0 before the first step of a sequence.

#include "kernels/distributed/gradient_registration.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/cpu/io_types.h"
#include "kernels/ssd_chunk_scan/bind.h"
#include "kernels/ssd_chunk_scan/delta.h"
#include "kernels/ssd_chunk_scan/distributed/host_shard.h"

namespace ssmbench::ssd_shards {
namespace {

template <class Io>
class WayBack {
 public:
  explicit WayBack(const SsdBwdArgs& args) : args_(args), in_(args.in) {}

  void run(const float* leaving, float* entering) const {
    const std::int64_t rows = in_.batch * in_.nheads;
#pragma omp parallel for schedule(static)
    for (std::int64_t row = 0; row < rows; ++row) run_head(row, leaving, entering);
  }

 private:
  using Storage = typename Io::Storage;

  static float load(const void* data, std::int64_t at) {
    return Io::load(static_cast<const Storage*>(data)[at]);
  }

  void run_head(std::int64_t row, const float* leaving, float* entering) const {
    const std::int64_t b = row / in_.nheads;
    const std::int64_t h = row % in_.nheads;
    const std::int64_t count = in_.headdim * in_.dstate;
    const StepRule rule{in_.dt_softplus, in_.dt_low, in_.dt_high};
    float* g = entering + row * count;
    if (leaving == nullptr)
      std::fill_n(g, count, 0.0F);
    else
      std::copy_n(leaving + row * count, count, g);
    for (std::int64_t t = in_.seqlen - 1; t >= 0; --t) {
      const std::int64_t step = b * in_.seqlen + t;
      const bool starts = in_.seq_idx != nullptr && t > 0 && in_.seq_idx[step] != in_.seq_idx[step - 1];
      const float bias = in_.dt_bias == nullptr ? 0.0F : in_.dt_bias[h];
      const float delta = step_size(load(in_.dt, step * in_.nheads + h), bias, rule);
      add_step(h, step, starts ? 0.0F : expf(delta * in_.A[h]), g);
    }
  }

  void add_step(std::int64_t h, std::int64_t step, float decay, float* g) const {
    const std::int64_t C = (step * in_.groups + h / in_.heads_per_group) * in_.dstate;
    for (std::int64_t p = 0; p < in_.headdim; ++p, g += in_.dstate) {
      const std::int64_t at = (step * in_.nheads + h) * in_.headdim + p;
      float dy = load(args_.dout, at);
      if (in_.z != nullptr) dy *= silu(load(in_.z, at));
      for (std::int64_t n = 0; n < in_.dstate; ++n) g[n] = decay * (dy * load(in_.C, C + n) + g[n]);
    }
  }

  SsdBwdArgs args_;
  SsdInputs in_;
};

std::function<void(const float*, float*, void*)> way_back(const Problem& part, const TensorSet& tensors,
                                                          void* /*workspace*/) {
  const SsdBwdArgs args = bind_ssd_bwd(part, tensors);
  return with_io_type(part.dtype(), [&]<class Io>(Io) -> std::function<void(const float*, float*, void*)> {
    return [way = WayBack<Io>(args)](const float* leaving, float* entering, void* /*stream*/) {
      way.run(leaving, entering);
    };
  });
}

/// Sequences of a problem by itself are numbered from 0 in each batch.
void rebase(const TensorView& numbers, std::int32_t* to, void* /*stream*/) {
  const std::int64_t steps = numbers.shape.back();
  const auto* from = static_cast<const std::int32_t*>(numbers.data);
  for (std::int64_t i = 0; i < element_count(numbers.shape); ++i) to[i] = from[i] - from[i / steps * steps];
}

std::unique_ptr<LocalScan> states(const Problem& part, const TensorSet& tensors, void* /*workspace*/) {
  return on_host(part,
                 SsdArgs{.in = bind_ssd_bwd(part, tensors).in, .out = nullptr, .final_states = nullptr});
}

const GradientRegistration registration(host_ranks(), {.op = "ssd_chunk_scan_bwd",
                                                       .state = "initial_states",
                                                       .dlast_state = "dfinal_states",
                                                       .dlast_axis = "final_states",
                                                       .numbers = "seq_idx",
                                                       .sums_over_time = {"dA", "dD", "ddt_bias"},
                                                       .unsupported = unsupported,
                                                       .sizes = sizes,
                                                       .scan = states,
                                                       .go_back = way_back,
                                                       .rebase = rebase});

}  // namespace
}  // namespace ssmbench::ssd_shards
