#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "model/problem.h"
#include "ops/ssd_chunk_scan/ssd_chunk_scan.h"
#include "reference/dual.h"

// The definition of Mamba-2's scan, word for word and slowly, over any kind of real number R, so that its
// derivatives come from R (dual numbers) or from differences.

namespace ssmbench::test {

inline double plain(double x) {
  return x;
}
inline double plain(long double x) {
  return static_cast<double>(x);
}
inline double plain(Dual x) {
  return x.value;
}

/// Tensors by name, row-major.
template <class R>
class SsdLoss {
 public:
  SsdLoss(const Problem& problem, const std::map<std::string, std::vector<R>>& values)
      : s_(problem), values_(values) {}

  std::vector<R> out, final_states;

  void run() {
    out.assign(static_cast<std::size_t>(s_.batch * s_.seqlen * s_.nheads * s_.headdim), R(0));
    final_states.assign(static_cast<std::size_t>(s_.batch * s_.nheads * s_.headdim * s_.dstate), R(0));
    for (std::int64_t b = 0; b < s_.batch; ++b)
      for (std::int64_t h = 0; h < s_.nheads; ++h)
        for (std::int64_t p = 0; p < s_.headdim; ++p)
          for (std::int64_t n = 0; n < s_.dstate; ++n) scan(b, h, p, n);
    for (std::int64_t i = 0; i < std::ssize(out); ++i) finish(i);
  }

  /// Σ dout·out + Σ dfinal_states·final_states.
  R loss() const {
    R sum(0);
    for (std::int64_t i = 0; i < std::ssize(out); ++i)
      sum = sum + at("dout", i) * out[static_cast<std::size_t>(i)];
    if (s_.has_final_states)
      for (std::int64_t i = 0; i < std::ssize(final_states); ++i)
        sum = sum + at("dfinal_states", i) * final_states[static_cast<std::size_t>(i)];
    return sum;
  }

 private:
  R at(const char* name, std::int64_t i) const { return values_.at(name)[static_cast<std::size_t>(i)]; }

  void scan(std::int64_t b, std::int64_t h, std::int64_t p, std::int64_t n) {
    using std::exp;
    using std::log;
    const std::int64_t state = ((b * s_.nheads + h) * s_.headdim + p) * s_.dstate + n;
    R S = s_.has_initial_states ? at("initial_states", state) : R(0);
    for (std::int64_t t = 0; t < s_.seqlen; ++t) {
      const std::int64_t step = b * s_.seqlen + t;
      if (s_.has_seq_idx && t > 0 && plain(at("seq_idx", step)) != plain(at("seq_idx", step - 1))) S = R(0);
      R delta = at("dt", step * s_.nheads + h);
      if (s_.has_dt_bias) delta = delta + at("dt_bias", h);
      if (s_.dt_softplus) delta = log(R(1) + exp(delta));
      if (plain(delta) < s_.dt_low) delta = R(s_.dt_low);
      if (plain(delta) > s_.dt_high) delta = R(s_.dt_high);
      const std::int64_t row = (step * s_.nheads + h) * s_.headdim + p;
      const std::int64_t projection = (step * s_.groups + h / s_.heads_per_group()) * s_.dstate + n;
      S = exp(delta * at("A", h)) * S + delta * at("x", row) * at("B", projection);
      out[static_cast<std::size_t>(row)] = out[static_cast<std::size_t>(row)] + S * at("C", projection);
    }
    final_states[static_cast<std::size_t>(state)] = S;
  }

  void finish(std::int64_t row) {
    using std::exp;
    R& y = out[static_cast<std::size_t>(row)];
    const std::int64_t channel = row % (s_.nheads * s_.headdim);
    if (s_.skip == SsdSkip::head) y = y + at("D", channel / s_.headdim) * at("x", row);
    if (s_.skip == SsdSkip::headdim) y = y + at("D", channel) * at("x", row);
    if (s_.has_z) y = y * at("z", row) / (R(1) + exp(R(0) - at("z", row)));
  }

  SsdChunkScan s_;
  const std::map<std::string, std::vector<R>>& values_;
};

}  // namespace ssmbench::test
