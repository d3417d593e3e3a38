// cpu-scalar for dense A: a matrix per channel. For bilinear one elimination per step, for foh Taylor series
// on the state, as kernels/selective_scan/dense/kernel.cuh does them.

#include "kernels/selective_scan/cpu/scalar_dense.h"

#include <array>
#include <cmath>
#include <utility>

#include "kernels/common/cpu/io_types.h"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_scan/bind.h"
#include "kernels/selective_scan/dense/map.h"

namespace ssmbench {
namespace {

using Vector = std::array<float, kMaxDenseDState>;
using Matrix = std::array<Vector, kMaxDenseDState>;

/// A·x
Vector product(const Matrix& A, const Vector& x, int n) {
  Vector y{};
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) y[i] += A[i][j] * x[j];
  return y;
}

/// X·Y
Matrix product(const Matrix& X, const Matrix& Y, int n) {
  Matrix sum{};
  for (int i = 0; i < n; ++i)
    for (int k = 0; k < n; ++k)
      for (int j = 0; j < n; ++j) sum[i][j] += X[i][k] * Y[k][j];
  return sum;
}

/// The solution of M·x = right by elimination with partial pivoting; overwrites M. A singular M gives values
/// that are not finite.
Vector solve(Matrix& M, Vector right, int n) {
  for (int k = 0; k < n; ++k) {
    int pivot = k;
    for (int i = k + 1; i < n; ++i)
      if (std::abs(M[i][k]) > std::abs(M[pivot][k])) pivot = i;
    std::swap(M[k], M[pivot]);
    std::swap(right[k], right[pivot]);
    for (int i = k + 1; i < n; ++i) {
      const float factor = M[i][k] / M[k][k];
      for (int j = k + 1; j < n; ++j) M[i][j] -= factor * M[k][j];
      right[i] -= factor * right[k];
    }
  }
  for (int i = n - 1; i >= 0; --i) {
    for (int j = i + 1; j < n; ++j) right[i] -= M[i][j] * right[j];
    right[i] /= M[i][i];
  }
  return right;
}

/// One channel's A, and a step with it: h ← h + x, w = A·h + input.
class DenseStep {
 public:
  DenseStep(const float* A, MethodId method, int n) : method_(method), n_(n) {
    for (int i = 0; i < n; ++i) {
      float row = 0;
      for (int j = 0; j < n; ++j) {
        A_[i][j] = A[i * n + j];
        row += std::abs(A_[i][j]);
      }
      norm_ = std::fmax(norm_, row);
    }
  }

  void operator()(Vector& h, const Vector& input, float delta) const {
    if (method_ == MethodId::foh) return hold(h, input, delta);
    Matrix M;
    for (int i = 0; i < n_; ++i)
      for (int j = 0; j < n_; ++j) M[i][j] = (i == j ? 1.0F : 0.0F) - 0.5F * delta * A_[i][j];
    const Vector x = solve(M, change(h, input, delta), n_);
    for (int i = 0; i < n_; ++i) h[i] += x[i];
  }

 private:
  /// scale·w
  Vector change(const Vector& h, const Vector& input, float scale) const {
    Vector w = product(A_, h, n_);
    for (int i = 0; i < n_; ++i) w[i] = scale * (w[i] + input[i]);
    return w;
  }

  void hold(Vector& h, const Vector& input, float delta) const {
    const auto [parts, doublings] = plan_hold(std::abs(delta) * norm_);
    const float tau = std::ldexp(delta / static_cast<float>(parts), -doublings);
    const float theta = std::fmin(std::abs(tau) * norm_, 1.0F);  // ends the series where nothing is finite
    for (int part = 0; part < parts; ++part) {
      Vector term = change(h, input, tau);
      Vector x = term;
      float size = theta / 2;
      for (int k = 2; size > kTaylorCutoff; ++k) {
        term = product(A_, term, n_);
        for (int i = 0; i < n_; ++i) x[i] += term[i] *= tau / static_cast<float>(k);
        size *= theta / static_cast<float>(k + 1);
      }
      if (doublings > 0) double_up(x, tau, doublings);
      for (int i = 0; i < n_; ++i) h[i] += x[i];
    }
  }

  /// From x = ∫₀^τ e^{sA}·w ds to the same up to 2^doublings·τ: with E = e^{τA} − I, x ← 2·x + E·x, E ← 2·E +
  /// E².
  void double_up(Vector& x, float tau, int doublings) const {
    Matrix E = exponential_minus_1(tau);
    for (int k = 0; k < doublings; ++k) {
      const Vector added = product(E, x, n_);
      for (int i = 0; i < n_; ++i) x[i] += x[i] + added[i];
      const Matrix square = product(E, E, n_);
      for (int i = 0; i < n_; ++i)
        for (int j = 0; j < n_; ++j) E[i][j] += E[i][j] + square[i][j];
    }
  }

  /// ‖τA‖ ≤ 1; by Horner's scheme.
  Matrix exponential_minus_1(float tau) const {
    Matrix E{};
    for (int i = 0; i < n_; ++i) E[i][i] = 1;
    for (int k = kExponentialTerms; k > 0; --k) {
      E = product(A_, E, n_);
      for (int i = 0; i < n_; ++i) {
        for (int j = 0; j < n_; ++j) E[i][j] *= tau / static_cast<float>(k);
        if (k > 1) E[i][i] += 1;
      }
    }
    return E;
  }

  MethodId method_;
  int n_;
  Matrix A_;
  float norm_ = 0;  // ‖A‖∞
};

/// B or C at one step.
template <class Io>
Vector projection(const void* data, bool variable, const ProjectionStrides& s, std::int64_t b, std::int64_t g,
                  std::int64_t d, std::int64_t t, int n) {
  Vector values{};
  for (int i = 0; i < n; ++i) {
    const std::int64_t offset = b * s.batch + g * s.group + d * s.channel + i * s.state + t * s.time;
    values[i] = variable ? Io::load(static_cast<const typename Io::Storage*>(data)[offset])
                         : static_cast<const float*>(data)[offset];
  }
  return values;
}

template <class Io>
void scan_row(const ScanArgs& args, MethodId method, std::int64_t b, std::int64_t d) {
  using Storage = typename Io::Storage;
  const int n = static_cast<int>(args.dstate);
  const std::int64_t g = d / args.channels_per_group;
  const std::int64_t row = b * args.sequence.batch + d * args.sequence.dim;
  const std::int64_t state_row = (b * args.dim + d) * n;
  const DenseStep step(args.A + d * n * n, method, n);

  Vector h{};
  if (args.initial_state != nullptr)
    for (int i = 0; i < n; ++i) h[i] = args.initial_state[state_row + i];
  for (std::int64_t t = 0; t < args.seqlen; ++t) {
    const std::int64_t at = row + t * args.sequence.time;
    const float u = Io::load(static_cast<const Storage*>(args.u)[at]);
    float delta = Io::load(static_cast<const Storage*>(args.delta)[at]);
    if (args.delta_bias != nullptr) delta += args.delta_bias[d];
    if (args.delta_softplus) delta = softplus(delta);
    Vector input = projection<Io>(args.B, args.variable_b, args.b_strides, b, g, d, t, n);
    for (int i = 0; i < n; ++i) input[i] *= u;
    step(h, input, delta);

    const Vector C = projection<Io>(args.C, args.variable_c, args.c_strides, b, g, d, t, n);
    float y = 0;
    for (int i = 0; i < n; ++i) y += C[i] * h[i];
    if (args.D != nullptr) y += args.D[d] * u;
    if (args.z != nullptr) y *= silu(Io::load(static_cast<const Storage*>(args.z)[at]));
    static_cast<Storage*>(args.out)[at] = Io::store(y);
  }
  for (int i = 0; i < n; ++i) args.last_state[state_row + i] = h[i];
}

template <class Io>
void scan(const ScanArgs& args, MethodId method) {
  for (std::int64_t b = 0; b < args.batch; ++b)
    for (std::int64_t d = 0; d < args.dim; ++d) scan_row<Io>(args, method, b, d);
}

}  // namespace

ScanCall scalar_dense_scan(MethodId method, DType io) {
  return with_io_type(
      io, [&]<class Io>(Io) -> ScanCall { return [=](const ScanArgs& args) { scan<Io>(args, method); }; });
}

}  // namespace ssmbench
