// cpu-scalar for the gradients: the plain adjoint loop in f32, one (b, d, n) row after the other on one
// thread, all states of a row kept. It is the readable version of what a faster implementation computes.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/scalar_math.h"
#include "kernels/cpu/io_types.h"
#include "kernels/selective_scan/args.h"

namespace ssmbench {
namespace {

float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}

/// One row (b, d) of all (B, D, L) tensors, and what is gathered for it over the states.
struct Row {
  std::vector<float> u, x, delta, z, dy, y, du, ddelta;

  explicit Row(std::int64_t seqlen)
      : u(seqlen), x(seqlen), delta(seqlen), z(seqlen), dy(seqlen), y(seqlen), du(seqlen), ddelta(seqlen) {}
};

template <class Io>
class Gradients {
 public:
  Gradients(const SelectiveScan& shape, TensorSet tensors) : s_(shape), tensors_(std::move(tensors)) {}

  void run() {
    dA_.assign(s_.dim * s_.dstate, 0);
    dD_.assign(s_.dim, 0);
    dbias_.assign(s_.dim, 0);
    dB_.assign(s_.variable_b ? s_.batch * s_.groups * s_.dstate * s_.seqlen : s_.dim * s_.dstate, 0);
    dC_.assign(s_.variable_c ? s_.batch * s_.groups * s_.dstate * s_.seqlen : s_.dim * s_.dstate, 0);
    Row row(s_.seqlen);
    for (std::int64_t b = 0; b < s_.batch; ++b) {
      for (std::int64_t d = 0; d < s_.dim; ++d) {
        load_row(b, d, row);
        for (std::int64_t n = 0; n < s_.dstate; ++n) adjoint(b, d, n, row);
        store_row(b, d, row);
      }
    }
    store_sums("dA", dA_);
    store_sums("dB", dB_);
    store_sums("dC", dC_);
    if (s_.has_D) store_sums("dD", dD_);
    if (s_.has_delta_bias) store_sums("ddelta_bias", dbias_);
  }

 private:
  using Storage = typename Io::Storage;

  const float* floats(const char* name) const { return static_cast<const float*>(tensors_.at(name).data); }
  float* writable(const char* name) const { return static_cast<float*>(tensors_.at(name).data); }

  std::int64_t at(const TensorView& view, std::int64_t b, std::int64_t d, std::int64_t t) const {
    return b * view.strides[0] + d * view.strides[1] + t * view.strides[2];
  }
  float load(const char* name, std::int64_t b, std::int64_t d, std::int64_t t) const {
    const TensorView& view = tensors_.at(name);
    return Io::load(static_cast<const Storage*>(view.data)[at(view, b, d, t)]);
  }
  void store(const char* name, std::int64_t b, std::int64_t d, std::int64_t t, float value) const {
    const TensorView& view = tensors_.at(name);
    static_cast<Storage*>(view.data)[at(view, b, d, t)] = Io::store(value);
  }
  /// Where an element of B or C has its sum: row-major in the logical shape.
  std::int64_t sum_at(bool variable, std::int64_t b, std::int64_t d, std::int64_t n, std::int64_t t) const {
    if (!variable) return d * s_.dstate + n;
    return ((b * s_.groups + d / s_.channels_per_group()) * s_.dstate + n) * s_.seqlen + t;
  }
  float projection(const char* name, bool variable, std::int64_t b, std::int64_t d, std::int64_t n,
                   std::int64_t t) const {
    if (!variable) return floats(name)[d * s_.dstate + n];
    const TensorView& view = tensors_.at(name);
    const Shape& strides = view.strides;
    const std::int64_t g = d / s_.channels_per_group();
    return Io::load(static_cast<const Storage*>(
        view.data)[b * strides[0] + g * strides[1] + n * strides[2] + t * strides[3]]);
  }

  void load_row(std::int64_t b, std::int64_t d, Row& row) const {
    for (std::int64_t t = 0; t < s_.seqlen; ++t) {
      row.u[t] = load("u", b, d, t);
      row.x[t] = load("delta", b, d, t) + (s_.has_delta_bias ? floats("delta_bias")[d] : 0.0F);
      row.delta[t] = s_.delta_softplus ? softplus(row.x[t]) : row.x[t];
      row.dy[t] = load("dout", b, d, t);
      if (s_.has_z) {
        row.z[t] = load("z", b, d, t);
        row.dy[t] *= silu(row.z[t]);
      }
    }
    for (auto* sums : {&row.y, &row.du, &row.ddelta}) std::ranges::fill(*sums, 0.0F);
  }

  void adjoint(std::int64_t b, std::int64_t d, std::int64_t n, Row& row) {
    const float A = floats("A")[d * s_.dstate + n];
    const std::int64_t state_row = (b * s_.dim + d) * s_.dstate + n;
    states_.assign(s_.seqlen + 1, s_.has_initial_state ? floats("initial_state")[state_row] : 0.0F);
    for (std::int64_t t = 0; t < s_.seqlen; ++t) {
      const float B = projection("B", s_.variable_b, b, d, n, t);
      states_[t + 1] = expf(row.delta[t] * A) * states_[t] + row.delta[t] * B * row.u[t];
      row.y[t] += projection("C", s_.variable_c, b, d, n, t) * states_[t + 1];
    }
    float carry = 0;
    for (std::int64_t t = s_.seqlen - 1; t >= 0; --t) {
      const float B = projection("B", s_.variable_b, b, d, n, t);
      const float g = row.dy[t] * projection("C", s_.variable_c, b, d, n, t) + carry;
      carry = g * expf(row.delta[t] * A);
      const float of_z = carry * states_[t];
      dA_[d * s_.dstate + n] += of_z * row.delta[t];
      row.ddelta[t] += of_z * A + g * B * row.u[t];
      row.du[t] += g * row.delta[t] * B;
      dB_[sum_at(s_.variable_b, b, d, n, t)] += g * row.delta[t] * row.u[t];
      dC_[sum_at(s_.variable_c, b, d, n, t)] += row.dy[t] * states_[t + 1];
    }
    if (s_.has_initial_state) writable("dinitial_state")[state_row] = carry;
  }

  void store_row(std::int64_t b, std::int64_t d, const Row& row) {
    const float D = s_.has_D ? floats("D")[d] : 0.0F;
    for (std::int64_t t = 0; t < s_.seqlen; ++t) {
      const float ddelta = row.ddelta[t] * (s_.delta_softplus ? sigmoid(row.x[t]) : 1.0F);
      dbias_[d] += ddelta;
      dD_[d] += row.dy[t] * row.u[t];
      store("ddelta", b, d, t, ddelta);
      store("du", b, d, t, row.du[t] + D * row.dy[t]);
      if (!s_.has_z) continue;
      const float open = sigmoid(row.z[t]);
      const float slope = open * (1.0F + row.z[t] * sigmoid(-row.z[t]));
      store("dz", b, d, t, load("dout", b, d, t) * (row.y[t] + D * row.u[t]) * slope);
    }
  }

  /// Rounds sums, row-major in the tensor's shape, to what the tensor holds.
  void store_sums(const char* name, const std::vector<float>& sums) const {
    const TensorView& view = tensors_.at(name);
    for (std::int64_t i = 0; i < std::ssize(sums); ++i) {
      std::int64_t offset = 0;
      std::int64_t rest = i;
      for (std::size_t axis = view.shape.size(); axis-- > 0; rest /= view.shape[axis])
        offset += rest % view.shape[axis] * view.strides[axis];
      store_from_double(view.data, offset, view.dtype, sums[i]);
    }
  }

  SelectiveScan s_;
  TensorSet tensors_;
  std::vector<float> dA_, dB_, dC_, dD_, dbias_;
  std::vector<float> states_;  // states_[t + 1] is h at step t
};

Launch bind(const Problem& problem, const TensorSet& tensors, void* /*workspace*/) {
  check_contract(problem, tensors);
  return with_io_type(problem.dtype(), [&](auto io) -> Launch {
    return
        [shape = SelectiveScan(problem), tensors](void*) { Gradients<decltype(io)>(shape, tensors).run(); };
  });
}

/// Per (element, state) pair the exponential twice, and the three multiply-adds of the forward scan and nine
/// of the adjoint.
Work work(const Problem& problem) {
  const double pairs = SelectiveScan(problem).pairs();
  return {.bytes = tensor_bytes(problem), .exponentials = 2 * pairs, .fmas = 12 * pairs};
}

const Registration registration{{.name = "cpu-scalar",
                                 .op = "selective_scan_bwd",
                                 .device = DeviceKind::cpu,
                                 .summary = "the plain sequential adjoint loop, one thread",
                                 .unsupported = not_real_zoh,
                                 .workspace_bytes = [](const Problem&) { return std::size_t{0}; },
                                 .work = work,
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench
