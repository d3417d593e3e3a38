// cpu-scalar for the gradients: the adjoint recurrence as it is derived, on one thread, libm exponentials. It
// is the readable version of what every faster implementation computes. With w_t = B_t·u_t, k = 2 for complex
// A and 1 for real, and gradients of complex x meaning ∂loss/∂Re x + i·∂loss/∂Im x:
//
//   dy_t = dout_t·silu(z_t)
//   g_t  = k·dy_t·conj(C_t) + conj(Ā_{t+1})·g_{t+1}                          gradient of h_t
//   the last step has dlast_state, or 0, in place of the latter
//   w_t  gets conj(c_t)·g_t + conj(c'_{t+1})·g_{t+1}
//   Ā_t, c_t, c'_t get g_t·conj(h_{t-1}), g_t·conj(w_t), g_t·conj(w_{t-1}) and pass them on to Δ_t and A
//
// Going back needs the states. One (batch, group) after the other, a first pass keeps those at the start of
// every tile of time steps:
//
//   time      0        tile     2·tile
//   forward   h ─────▶ h ─────▶ h ─────▶      checkpoints, for every (channel, state)
//   back      ◀─────── ◀─────── ◀───────      last tile first: its states again, then its adjoint
//
// With x a tile has the steps from one of its states to the next, and nothing is kept.
//
// A tile is done for all channels of the group before the one before it, since they share dB and dC: those
// sums are f32 for one tile, and rounded once.

#include "kernels/selective_scan/cpu/scalar_bwd.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/discretize_derivative.h"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_scan/bind.h"
#include "ops/selective_scan/x.h"

namespace ssmbench::scalar_scan_bwd {
namespace {

using namespace scalar_bwd;

float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}

template <class Value, Family family>
class Gradients {
 public:
  Gradients(const SelectiveScan& shape, const TensorSet& tensors, void* workspace)
      : s_(shape),
        method_(method_parameters(shape.method)),
        x_(array<const Value>(tensors, "x")),
        tile_(x_ != nullptr ? std::min(shape.seqlen, kStepsOfX) : tile_steps(shape)),
        tiles_(ceil_div(shape.seqlen, tile_)),
        u_(tensors, "u"),
        delta_(tensors, "delta"),
        z_(tensors, "z"),
        dout_(tensors, "dout"),
        du_(tensors, "du"),
        ddelta_(tensors, "ddelta"),
        dz_(tensors, "dz"),
        B_(tensors, "B", shape.variable_b),
        C_(tensors, "C", shape.variable_c),
        dB_(tensors, "dB", shape.variable_b),
        dC_(tensors, "dC", shape.variable_c),
        A_(array<Value>(tensors, "A")),
        dA_(array<Value>(tensors, "dA")),
        initial_state_(array<Value>(tensors, "initial_state")),
        dlast_state_(array<Value>(tensors, "dlast_state")),
        dinitial_state_(array<Value>(tensors, "dinitial_state")),
        D_(array<float>(tensors, "D")),
        dD_(array<float>(tensors, "dD")),
        bias_(array<float>(tensors, "delta_bias")),
        dbias_(array<float>(tensors, "ddelta_bias")),
        room_(shape, workspace) {}

  void run() const {
    clear_sums();
    for (std::int64_t b = 0; b < s_.batch; ++b) {
      for (std::int64_t g = 0; g < s_.groups; ++g) {
        const std::int64_t first = g * s_.channels_per_group();
        for (std::int64_t d = first; d < first + s_.channels_per_group(); ++d) {
          begin_carries({b, g, d});
          if (x_ == nullptr) make_checkpoints({b, g, d});
        }
        for (std::int64_t tile = tiles_ - 1; tile >= 0; --tile) {
          std::fill_n(room_.shares, s_.variable_b || s_.variable_c ? s_.dstate * tile_ : 0,
                      ProjectionSums<Value>{});
          for (std::int64_t d = first; d < first + s_.channels_per_group(); ++d) go_back({b, g, d}, tile);
          store_shares({b, g, first}, tile);
        }
      }
    }
  }

 private:
  template <class T>
  static T* array(const TensorSet& tensors, const char* name) {
    const TensorView* view = tensors.find(name);
    return view == nullptr ? nullptr : static_cast<T*>(view->data);
  }

  /// Sums over batch and time are gathered where they end up, in f32.
  void clear_sums() const {
    std::fill_n(dA_, s_.dim * s_.dstate, Value{});
    for (const auto& [gradient, variable] : {std::pair(dB_, s_.variable_b), std::pair(dC_, s_.variable_c)})
      if (!variable) std::fill_n(static_cast<Value*>(gradient.data), s_.dim * s_.dstate, Value{});
    for (float* sums : {dD_, dbias_})
      if (sums != nullptr) std::fill_n(sums, s_.dim, 0.0F);
  }

  std::int64_t steps_in(std::int64_t tile) const { return std::min(tile_, s_.seqlen - tile * tile_); }
  /// Where the group's arrays have state n of a channel.
  std::int64_t in_group(const Row& row, std::int64_t n) const {
    return row.d % s_.channels_per_group() * s_.dstate + n;
  }

  void load_steps(const Row& row, std::int64_t tile) const {
    for (std::int64_t i = 0; i < steps_in(tile); ++i) {
      const std::int64_t t = tile * tile_ + i;
      const float x = delta_.load(row, t) + (bias_ != nullptr ? bias_[row.d] : 0.0F);
      StepRow& step = room_.steps[i];
      step = {.u = u_.load(row, t),
              .delta = s_.delta_softplus ? softplus(x) : x,
              .delta_slope = s_.delta_softplus ? sigmoid(x) : 1.0F,
              .dy = dout_.load(row, t),
              .dz_factor = 0,
              .y = 0,
              .du = 0,
              .ddelta = 0};
      if (!s_.has_z) continue;
      const float z = z_.load(row, t);
      step.dz_factor = step.dy * (sigmoid(z) * (1.0F + z * sigmoid(-z)));
      step.dy *= silu(z);
    }
  }

  /// Takes state n from room_.states[0] through the tile; leaves rules, products and states there.
  void go_forward(const Row& row, std::int64_t n, std::int64_t tile) const {
    const std::int64_t start = tile * tile_;
    const Value A = A_[row.d * s_.dstate + n];
    Value* states = room_.states;
    Value* products = room_.products;
    products[0] = start == 0 ? Value{} : u_.load(row, start - 1) * B_.load(row, n, start - 1);
    B_.load(row, n, start, steps_in(tile), room_.B);
    for (std::int64_t i = 0; i < steps_in(tile); ++i) {
      const auto& rule = room_.rules[i] = StepDerivative<family>(method_, room_.steps[i].delta)(A);
      products[i + 1] = room_.steps[i].u * room_.B[s_.variable_b ? i : 0];
      states[i + 1] = rule.decay.value * states[i] + rule.input.value * products[i + 1];
      if constexpr (two_samples(family)) states[i + 1] = states[i + 1] + rule.previous.value * products[i];
    }
  }

  void begin_carries(const Row& row) const {
    for (std::int64_t n = 0; n < s_.dstate; ++n) {
      const std::int64_t state = (row.b * s_.dim + row.d) * s_.dstate + n;
      room_.carries[in_group(row, n)] = {dlast_state_ != nullptr ? dlast_state_[state] : Value{}, Value{}};
    }
  }

  void make_checkpoints(const Row& row) const {
    for (std::int64_t n = 0; n < s_.dstate; ++n)
      room_.checkpoints[in_group(row, n) * tiles_] =
          s_.has_initial_state ? initial_state_[(row.b * s_.dim + row.d) * s_.dstate + n] : Value{};
    for (std::int64_t tile = 0; tile + 1 < tiles_; ++tile) {
      load_steps(row, tile);
      for (std::int64_t n = 0; n < s_.dstate; ++n) {
        Value* checkpoint = room_.checkpoints + in_group(row, n) * tiles_ + tile;
        room_.states[0] = checkpoint[0];
        go_forward(row, n, tile);
        checkpoint[1] = room_.states[tile_];
      }
    }
  }

  void go_back(const Row& row, std::int64_t tile) const {
    load_steps(row, tile);
    for (std::int64_t n = 0; n < s_.dstate; ++n) {
      room_.states[0] = x_ != nullptr ? x_[((row.b * tiles_ + tile) * s_.dim + row.d) * s_.dstate + n]
                                      : room_.checkpoints[in_group(row, n) * tiles_ + tile];
      go_forward(row, n, tile);
      adjoint(row, n, tile);
      if (tile == 0 && s_.has_initial_state)
        dinitial_state_[(row.b * s_.dim + row.d) * s_.dstate + n] = room_.carries[in_group(row, n)].of_state;
    }
    store_steps(row, tile);
  }

  /// After go_forward.
  void adjoint(const Row& row, std::int64_t n, std::int64_t tile) const {
    Carry<Value>& carry = room_.carries[in_group(row, n)];
    Value dA{};
    ProjectionSums<Value> constant{};
    C_.load(row, n, tile * tile_, steps_in(tile), room_.C);
    for (std::int64_t i = steps_in(tile) - 1; i >= 0; --i) {
      const auto& rule = room_.rules[i];
      StepRow& step = room_.steps[i];
      const Value C = room_.C[s_.variable_c ? i : 0];
      const float dy = kOutputFactor<Value> * step.dy;
      const Value g = dy * conjugate(C) + carry.of_state;
      carry.of_state = conjugate(rule.decay.value) * g;

      const Value of_decay = g * conjugate(room_.states[i]);
      const Value of_input = g * conjugate(room_.products[i + 1]);
      dA = dA + conjugate(rule.decay.by_A) * of_decay;
      if constexpr (input_varies(family)) dA = dA + conjugate(rule.input.by_A) * of_input;
      step.ddelta += real_part(conjugate(rule.decay.by_delta) * of_decay);
      step.ddelta += real_part(conjugate(rule.input.by_delta) * of_input);
      Value of_product = conjugate(rule.input.value) * g;
      if constexpr (two_samples(family)) {
        const Value of_previous = g * conjugate(room_.products[i]);
        dA = dA + conjugate(rule.previous.by_A) * of_previous;
        step.ddelta += real_part(conjugate(rule.previous.by_delta) * of_previous);
        of_product = of_product + carry.of_product;
        carry.of_product = conjugate(rule.previous.value) * g;
      }

      step.y += real_product(C, room_.states[i + 1]);
      step.du += real_part(conjugate(room_.B[s_.variable_b ? i : 0]) * of_product);
      ProjectionSums<Value>* share = room_.shares + n * tile_ + i;
      Value& dB = s_.variable_b ? share->dB : constant.dB;
      Value& dC = s_.variable_c ? share->dC : constant.dC;
      dB = dB + step.u * of_product;
      dC = dC + dy * conjugate(room_.states[i + 1]);
    }
    // A tile's sums are added to those of the tiles and batches before, so that no sum is long.
    Value& total = dA_[row.d * s_.dstate + n];
    total = total + dA;
    if (!s_.variable_b) dB_.store(row, n, 0, dB_.load(row, n, 0) + constant.dB);
    if (!s_.variable_c) dC_.store(row, n, 0, dC_.load(row, n, 0) + constant.dC);
  }

  /// du, ddelta and dz of a channel's tile, and its shares of dD and ddelta_bias.
  void store_steps(const Row& row, std::int64_t tile) const {
    const float D = D_ != nullptr ? D_[row.d] : 0.0F;
    float dD = 0;
    float dbias = 0;
    for (std::int64_t i = 0; i < steps_in(tile); ++i) {
      const std::int64_t t = tile * tile_ + i;
      const StepRow& step = room_.steps[i];
      const float ddelta = step.ddelta * step.delta_slope;
      dbias += ddelta;
      dD += step.dy * step.u;
      ddelta_.store(row, t, ddelta);
      du_.store(row, t, step.du + D * step.dy);
      if (s_.has_z) dz_.store(row, t, (kOutputFactor<Value> * step.y + D * step.u) * step.dz_factor);
    }
    if (dD_ != nullptr) dD_[row.d] += dD;
    if (dbias_ != nullptr) dbias_[row.d] += dbias;
  }

  void store_shares(const Row& row, std::int64_t tile) const {
    for (std::int64_t n = 0; n < s_.dstate; ++n) {
      for (std::int64_t i = 0; i < steps_in(tile); ++i) {
        const ProjectionSums<Value>* share = room_.shares + n * tile_ + i;
        if (s_.variable_b) dB_.store(row, n, tile * tile_ + i, share->dB);
        if (s_.variable_c) dC_.store(row, n, tile * tile_ + i, share->dC);
      }
    }
  }

  SelectiveScan s_;
  MethodParameters method_;
  const Value* x_;             // null where there is none
  std::int64_t tile_, tiles_;  // steps of a tile, tiles of the sequence
  Sequence u_, delta_, z_, dout_, du_, ddelta_, dz_;
  Projection<Value> B_, C_, dB_, dC_;
  const Value* A_;
  Value* dA_;
  const Value* initial_state_;
  const Value* dlast_state_;
  Value* dinitial_state_;
  const float* D_;
  float* dD_;
  const float* bias_;
  float* dbias_;
  Room<Value, family> room_;
};

/// Calls `call` with the problem's value type and family as types.
template <class Call>
auto with_value_and_family(const SelectiveScan& shape, const Call& call) {
  return with_family(shape.method, [&]<Family family>(std::integral_constant<Family, family> constant) {
    if (shape.complex) return call(Complex{}, constant);
    return call(0.0F, constant);
  });
}

Launch bind(const Problem& problem, const TensorSet& tensors, void* workspace) {
  check_contract(problem, tensors);
  const SelectiveScan shape(problem);
  return with_value_and_family(
      shape, [&]<class Value, Family family>(Value, std::integral_constant<Family, family>) -> Launch {
        return [gradients = Gradients<Value, family>(shape, tensors, workspace)](void*) { gradients.run(); };
      });
}

std::size_t workspace_bytes(const Problem& problem) {
  const SelectiveScan shape(problem);
  return with_value_and_family(
      shape, [&]<class Value, Family family>(Value, std::integral_constant<Family, family>) {
        return Room<Value, family>(shape, nullptr).bytes;
      });
}

const Registration registration{{.name = "cpu-scalar",
                                 .op = "selective_scan_bwd",
                                 .device = DeviceKind::cpu,
                                 .summary = "the plain sequential adjoint loop, one thread",
                                 .unsupported = [](const Problem&) { return std::optional<std::string>(); },
                                 .workspace_bytes = workspace_bytes,
                                 .bind = bind}};

}  // namespace
}  // namespace ssmbench::scalar_scan_bwd
