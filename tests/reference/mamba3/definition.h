#pragma once

#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "inputs/inputs.h"
#include "ops/mamba3/mamba3.h"
#include "reference/dual.h"
#include "reference/reference.h"
#include "support/host_tensors.h"

// Mamba-3's recurrence word for word and slowly, over any kind of real number R, so that its derivatives come
// from R (dual numbers) or from differences.

namespace ssmbench::test {

/// Tensors by name, row-major.
using Values = std::map<std::string, std::vector<double>>;

inline Values values_of(const std::vector<HostTensor>& tensors) {
  Values all;
  for (const auto& tensor : tensors)
    for (std::int64_t i = 0; i < element_count(tensor.spec.shape); ++i)
      all[tensor.spec.name].push_back(tensor.spec.dtype == DType::i32
                                          ? static_cast<const std::int32_t*>(tensor.buffer.data())[i]
                                          : load_as_double(tensor.buffer.data(), i, tensor.spec.dtype));
  return all;
}

inline Values drawn_values(const Problem& problem, std::int64_t seed = 3) {
  return values_of(generate_inputs(problem, {.seed = seed}, never_stop));
}

/// What the reference makes of these inputs, which are rounded to their dtypes.
inline ReferenceOutputs reference_of(const Problem& problem, const Values& values) {
  std::vector<HostTensor> tensors;
  for (auto& spec : specs_of(problem, Role::input)) {
    const HostTensor& tensor = tensors.emplace_back(spec);
    const auto& numbers = values.at(spec.name);
    for (std::int64_t i = 0; i < element_count(spec.shape); ++i) {
      const double value = numbers.at(static_cast<std::size_t>(i));
      if (spec.dtype == DType::i32)
        static_cast<std::int32_t*>(tensor.buffer.data())[i] = static_cast<std::int32_t>(value);
      else
        store_from_double(tensor.buffer.data(), i, spec.dtype, value);
    }
  }
  return compute_reference(problem, views_of(tensors), never_stop);
}

inline std::int64_t whole(double x) {
  return static_cast<std::int64_t>(x);
}
inline std::int64_t whole(long double x) {
  return static_cast<std::int64_t>(x);
}
inline std::int64_t whole(Dual x) {
  return static_cast<std::int64_t>(x.value);
}

template <class R = double>
class Mamba3Definition {
 public:
  using Tensors = std::map<std::string, std::vector<R>>;

  Mamba3Definition(const Problem& problem, const Tensors& values) : s_(problem), in_(values) {
    for (const auto& spec : specs_of(problem, Role::output))
      out[spec.name].assign(static_cast<std::size_t>(element_count(spec.shape)), R(0));
    for (std::int64_t m = 0; m < s_.sequences; ++m)
      for (std::int64_t h = 0; h < s_.nheads; ++h) run(m, h);
  }

  Tensors out;

 private:
  using Vector = std::vector<R>;

  R at(const std::string& name, std::int64_t i) const { return in_.at(name).at(static_cast<std::size_t>(i)); }
  std::string initial(const char* state) const { return (s_.is_step ? "" : "Input_") + std::string(state); }
  std::string final(const char* state) const { return (s_.is_step ? "" : "Final_") + std::string(state); }
  R projected(const char* name, std::int64_t h, std::int64_t r, std::int64_t p) const {
    return in_.contains(name) ? at(name, (h * s_.rank + r) * s_.headdim + p) : R(1);
  }
  std::int64_t k_state(std::int64_t m, std::int64_t r, std::int64_t h) const {
    return ((m * s_.rank + r) * s_.nheads + h) * s_.dstate;
  }

  Vector rotated(const char* name, std::int64_t b, std::int64_t t, std::int64_t r, std::int64_t h) const {
    const std::int64_t g = h / (s_.nheads / s_.groups);
    using std::cos;
    using std::sin;
    Vector x(static_cast<std::size_t>(s_.dstate));
    for (std::int64_t n = 0; n < s_.dstate; ++n)
      x[n] = at(name, (((b * s_.seqlen + t) * s_.rank + r) * s_.groups + g) * s_.dstate + n) +
             at(name + std::string("_bias"), (h * s_.rank + r) * s_.dstate + n);
    for (std::int64_t i = 0; i < s_.angles; ++i) {
      const std::int64_t first = s_.interleaved ? 2 * i : i;
      const std::int64_t second = s_.interleaved ? 2 * i + 1 : i + s_.dstate / 2;
      const R x0 = x[first];
      const R x1 = x[second];
      x[first] = x0 * cos(theta_[i]) - x1 * sin(theta_[i]);
      x[second] = x0 * sin(theta_[i]) + x1 * cos(theta_[i]);
    }
    return x;
  }

  void run(std::int64_t m, std::int64_t h) {
    const std::int64_t b = s_.has_cu_seqlens ? 0 : m;
    const std::int64_t begin = s_.has_cu_seqlens ? whole(at("cu_seqlens", m)) : 0;
    const std::int64_t end = s_.has_cu_seqlens ? whole(at("cu_seqlens", m + 1)) : s_.seqlen;
    const std::int64_t state = m * s_.nheads + h;
    Vector S(static_cast<std::size_t>(s_.headdim * s_.dstate));
    Vector v_before(static_cast<std::size_t>(s_.headdim));
    std::vector<Vector> k_before(static_cast<std::size_t>(s_.rank),
                                 Vector(static_cast<std::size_t>(s_.dstate)));
    theta_.assign(static_cast<std::size_t>(s_.angles), 0);
    if (s_.has_initial_states) {
      for (std::int64_t i = 0; i < s_.angles; ++i)
        theta_[i] = at(initial("Angle_State"), state * s_.angles + i);
      for (std::int64_t i = 0; i < std::ssize(S); ++i)
        S[i] = at(initial("SSM_State"), state * std::ssize(S) + i);
      for (std::int64_t p = 0; p < s_.headdim; ++p)
        v_before[p] = at(initial("V_State"), state * s_.headdim + p);
      for (std::int64_t r = 0; r < s_.rank; ++r)
        for (std::int64_t n = 0; n < s_.dstate; ++n)
          k_before[r][n] = at(initial("K_State"), k_state(m, r, h) + n);
    }
    for (std::int64_t t = begin; t < end; ++t) step(b, h, t, S, v_before, k_before);
    if (!s_.has_final_states) return;
    for (std::int64_t i = 0; i < s_.angles; ++i) out[final("Angle_State")][state * s_.angles + i] = theta_[i];
    for (std::int64_t i = 0; i < std::ssize(S); ++i)
      out[final("SSM_State")][state * std::ssize(S) + i] = S[i];
    for (std::int64_t p = 0; p < s_.headdim; ++p) out[final("V_State")][state * s_.headdim + p] = v_before[p];
    for (std::int64_t r = 0; r < s_.rank; ++r)
      for (std::int64_t n = 0; n < s_.dstate; ++n)
        out[final("K_State")][k_state(m, r, h) + n] = k_before[r][n];
  }

  void step(std::int64_t b, std::int64_t h, std::int64_t t, Vector& S, Vector& v_before,
            std::vector<Vector>& k_before) {
    const std::int64_t scalar = (b * s_.nheads + h) * s_.seqlen + t;
    const std::int64_t row = (b * s_.seqlen + t) * s_.nheads + h;
    using std::exp;
    using std::tanh;
    const R lambda = R(1) / (R(1) + exp(R(0) - at("Trap", scalar)));
    const R alpha = exp(at("ADT", scalar));
    const R beta = (R(1) - lambda) * at("DT", scalar) * alpha;
    const R gamma = lambda * at("DT", scalar);
    for (std::int64_t i = 0; i < s_.angles; ++i)
      theta_[i] =
          theta_[i] + at("DT", scalar) * R(std::numbers::pi) * tanh(at("Angles", row * s_.angles + i));
    Vector v(static_cast<std::size_t>(s_.headdim));
    for (std::int64_t p = 0; p < s_.headdim; ++p) v[p] = at("V", row * s_.headdim + p);
    std::vector<Vector> k;
    for (std::int64_t r = 0; r < s_.rank; ++r) k.push_back(rotated("K", b, t, r, h));
    for (std::int64_t p = 0; p < s_.headdim; ++p)
      for (std::int64_t n = 0; n < s_.dstate; ++n) {
        R& element = S[p * s_.dstate + n];
        element = element * alpha;
        for (std::int64_t r = 0; r < s_.rank; ++r) {
          const R up = projected("MIMO_V", h, r, p);
          element = element + beta * v_before[p] * up * k_before[r][n] + gamma * v[p] * up * k[r][n];
        }
      }
    for (std::int64_t r = 0; r < s_.rank; ++r) read(b, h, t, r, S, v);
    v_before = v;
    k_before = k;
  }

  /// y^r, gated, into out.
  void read(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t r, const Vector& S,
            const Vector& v) {
    const std::int64_t row = (b * s_.seqlen + t) * s_.nheads + h;
    using std::exp;
    using std::sqrt;
    const Vector q = rotated("Q", b, t, r, h);
    Vector y(static_cast<std::size_t>(s_.headdim));
    R squares(0);
    for (std::int64_t p = 0; p < s_.headdim; ++p) {
      if (s_.has_D) y[p] = at("D", h) * v[p] * projected("MIMO_V", h, r, p);
      for (std::int64_t n = 0; n < s_.dstate; ++n) y[p] = y[p] + S[p * s_.dstate + n] * q[n];
      squares = squares + y[p] * y[p];
    }
    for (std::int64_t p = 0; p < s_.headdim; ++p) {
      if (s_.has_norm)
        y[p] = y[p] * at("outproj_norm_weight", h * s_.headdim + p) /
               sqrt(squares / R(static_cast<double>(s_.headdim)) + R(1e-5));
      if (s_.has_z) {
        const R z = at("Z", row * s_.headdim + p) * projected("MIMO_Z", h, r, p);
        y[p] = y[p] * z / (R(1) + exp(R(0) - z));
      }
      const std::int64_t ranked = ((b * s_.seqlen + t) * s_.rank + r) * s_.nheads + h;
      if (s_.reduces_ranks)
        out["out"][row * s_.headdim + p] =
            out["out"][row * s_.headdim + p] + y[p] * projected("MIMO_Out", h, r, p);
      else
        out["out"][ranked * s_.headdim + p] = y[p];
    }
  }

  Mamba3 s_;
  const Tensors& in_;
  Vector theta_;
};

}  // namespace ssmbench::test
