#pragma once

// MIMO's factors around the products: V and dy of each rank before them; the gradients of V, Z, D and of the factors
// themselves behind them, which need y. Team and Io as in prepare.h.

#include <cstdint>
#include <type_traits>

#include "kernels/common/activations.h"
#include "kernels/mamba3/tensor_bwd/finish.h"

namespace ssmbench::mamba3_bwd {

/// Where dout of a step is for rank r, `step` of (batch, time).
SSMBENCH_TEAM inline std::int64_t dout_at(const Mamba3BwdArgs& args, const Plan& plan, std::int64_t step,
                                          std::int64_t head, int r) {
  const std::int64_t row = args.in.scan.reduces_ranks ? step : step * plan.ranks + r;
  return (row * plan.nheads + head) * plan.headdim;
}

/// V·MIMO_V and dy = dout·MIMO_Out·silu(Z·MIMO_Z) of all ranks, rounded. `at`: octet of (batch, time, head, P).
template <class Io>
SSMBENCH_TEAM void raise_ranks(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& to,
                               std::int64_t at) {
  const int octets = plan.headdim / kOctet;
  const std::int64_t row = at / octets;
  const int p = static_cast<int>(at - row * octets) * kOctet;
  const std::int64_t step = row / plan.nheads;
  const std::int64_t head = row - step * plan.nheads;
  const Mamba3Args& in = args.in;
  const Octet v = Io::load_octet(in.V, at * kOctet);
  const Octet z = in.Z == nullptr ? Octet{} : Io::load_octet(in.Z, at * kOctet);
  for (int r = 0; r < plan.ranks; ++r) {
    const std::int64_t factors = (head * plan.ranks + r) * plan.headdim + p;
    const Octet up = Io::load_floats(in.mimo_v + factors);
    Octet raised = Io::load_octet(args.dout, dout_at(args, plan, step, head, r) + p);
    if (in.mimo_out != nullptr) {
      const Octet down = Io::load_floats(in.mimo_out + factors);
      for (int i = 0; i < kOctet; ++i) raised.state[i] *= down.state[i];
    }
    if (in.Z != nullptr) {
      const Octet gate = Io::load_floats(in.mimo_z + factors);
      for (int i = 0; i < kOctet; ++i) raised.state[i] *= gate_of(z.state[i] * gate.state[i]).value;
    }
    Octet product{};
    for (int i = 0; i < kOctet; ++i) product.state[i] = v.state[i] * up.state[i];
    const std::int64_t ranked = ((step * plan.ranks + r) * plan.nheads + head) * plan.headdim + p;
    Io::store_octet(to.v, ranked, product);
    Io::store_octet(to.dy, ranked, raised);
  }
}

/// Whether anything but dV needs y.
SSMBENCH_TEAM inline bool needs_y(const Mamba3BwdArgs& args) {
  return args.in.Z != nullptr || args.in.mimo_out != nullptr;
}

/// Runs of steps that a span is cut into: what a block of 256 threads with two head dims each takes, and of 8 ranks
/// what shared memory takes.
template <class Form>
inline constexpr int kSpanRuns = Form::kRanks == 8 ? 4 : 8;
/// Sums of a head dim: dMIMO_V, dMIMO_Z and dMIMO_Out of each rank, then dD.
template <class Form>
inline constexpr int kFactorSums = 3 * Form::kRanks + 1;
/// Parts that the head dims are cut into for dD.
inline constexpr int kSkipParts = 8;

/// Memory of a block that lowers ranks.
template <class Form>
struct FactorMemory {
  float factors[3][Form::kRanks][kMaxHeaddim];  ///< MIMO_V, MIMO_Z and MIMO_Out of the head
  float runs[kSpanRuns<Form>][kFactorSums<Form>][kMaxHeaddim];
  float skips[kMaxHeaddim];
  float skip_parts[kSkipParts];
};

/// Of a span of steps of a (batch, head): dV and dZ, and sums for dMIMO_V, dMIMO_Z, dMIMO_Out and dD.
template <class Io, class Form, class Team>
struct LowerRanks {
  const Mamba3BwdArgs& args;
  const Plan& plan;
  const Workspace& work;
  FactorMemory<Form>& memory;
  Span row;
  const Team& team;

  SSMBENCH_TEAM void run() const {
    const int headdim = plan.headdim;
    const int pairs = headdim / 2;
    // All that the span has is on its way to the L2 before the first is waited for.
    const int rows = row.rows(plan);
    const Places places = places_at(0);
    team.for_all(rows + kRanks * headdim, [&](int i) {
      if (i < rows) {
        const std::int64_t at = places.left + left_of(i / kRanks) + i % kRanks * kMaxHeaddim;
        Io::prefetch(Io::element(static_cast<const void*>(work.y), at));
        Io::prefetch(Io::element(static_cast<const void*>(work.dv), at));
        if (!args.in.scan.reduces_ranks) Io::prefetch(Io::element(args.dout, places.ranked + i * pitch()));
        if (i % kRanks != 0) return;
        const std::int64_t step = places.step + i / kRanks * pitch();
        if (args.in.scan.reduces_ranks) Io::prefetch(Io::element(args.dout, step));
        Io::prefetch(Io::element(args.in.V, step));
        if (args.in.Z != nullptr) Io::prefetch(Io::element(args.in.Z, step));
        return;
      }
      const Split at = split<kMaxHeaddim>(i - rows, headdim);
      const auto factor = [&](const float* all) { return factor_of(all, plan, row.head, at.of, at.rest); };
      memory.factors[0][at.of][at.rest] = factor(args.in.mimo_v);
      memory.factors[1][at.of][at.rest] = factor(args.in.mimo_z);
      memory.factors[2][at.of][at.rest] = factor(args.in.mimo_out);
    });
    team.for_all(kSpanRuns<Form> * pairs, [&](int i) {
      const Split at = split<kMaxHeaddim / 2>(i, pairs);
      const auto lower_run = [&](auto gated) {
        if (args.in.scan.reduces_ranks)
          lower<decltype(gated)::value, true>(at.of, 2 * at.rest);
        else
          lower<decltype(gated)::value, false>(at.of, 2 * at.rest);
      };
      if (args.in.Z == nullptr)
        lower_run(std::false_type());
      else
        lower_run(std::true_type());
    });
    const std::int64_t span = row.b * plan.spans + row.chunk / kRanks;
    float* const sums = work.span_sums + (span * plan.nheads + row.head) * plan.factor_sums;
    team.for_all(kFactorSums<Form> * headdim, [&](int i) {
      const Split at = split<kMaxHeaddim>(i, headdim);
      float sum = 0;
      for (int run = 0; run < kSpanRuns<Form>; ++run) sum += memory.runs[run][at.of][at.rest];
      if (i < plan.factor_sums - 1)
        sums[i] = sum;
      else
        memory.skips[at.rest] = sum;
    });
    team.for_all(kSkipParts, [&](int part) {
      float sum = 0;
      for (int p = part; p < headdim; p += kSkipParts) sum += memory.skips[p];
      memory.skip_parts[part] = sum;
    });
    team.for_all(1, [&](int) {
      float sum = 0;
      for (const float part : memory.skip_parts) sum += part;
      sums[plan.factor_sums - 1] = sum;
    });
  }

 private:
  static constexpr int kRanks = Form::kRanks;
  using Word = typename Io::Word;

  /// What is summed over time, of two head dims.
  struct Columns {
    Pair of_up[kRanks], of_gate[kRanks], of_down[kRanks], of_skip;
  };
  /// What there is of a step, of two head dims: words of two elements as they are stored, since registers are
  /// short.
  template <bool kReduces>
  struct StepWords {
    Word y[kRanks], dv[kRanks], dout[kReduces ? 1 : kRanks], v, z;
  };

  SSMBENCH_TEAM Pair factors_of(int which, int r, int p) const {
    const float* const from = memory.factors[which][r] + p;
    return {{from[0], from[1]}};
  }

  /// Every kSpanRuns-th step of the span from `run` on. The next one is on its way while one is computed: the last
  /// one's again, so that it is no branch.
  template <bool kGated, bool kReduces>
  SSMBENCH_TEAM void lower(int run, int p) const {
    Columns columns{};
    const int last = row.steps - 1;
    const float skip = args.in.D == nullptr ? 0.0F : args.in.D[row.head];
    const Places places = places_at(p);
    const auto load = [&](int t) { return load_step<kGated, kReduces>(places, t < last ? t : last); };
    StepWords<kReduces> next = load(run);
    for (int t = run; t <= last; t += kSpanRuns<Form>) {
      const StepWords<kReduces> now = next;
      next = load(t + kSpanRuns<Form>);
      lower_step<kGated, kReduces>(now, places, t, p, skip, columns);
    }
    for (int i = 0; i < 2; ++i) {
      for (int r = 0; r < kRanks; ++r) {
        memory.runs[run][r][p + i] = columns.of_up[r].x[i];
        memory.runs[run][kRanks + r][p + i] = columns.of_gate[r].x[i];
        memory.runs[run][2 * kRanks + r][p + i] = columns.of_down[r].x[i];
      }
      memory.runs[run][3 * kRanks][p + i] = columns.of_skip.x[i];
    }
  }

  /// Where the span begins: in tensors with a row for each step, and for each step and rank; in y and dV. Steps are 32
  /// bits from there.
  struct Places {
    std::int64_t step, ranked, left;
    int final_step;  ///< the step with the cotangent of the last V, or none
  };
  SSMBENCH_TEAM Places places_at(int p) const {
    return {row.step(plan, 0) * plan.headdim + p, row.ranked(plan, 0) * plan.headdim + p, row.left(0) + p,
            args.dfinal_v != nullptr && row.closes ? row.steps - 1 : -1};
  }
  /// Elements of a row of all heads.
  SSMBENCH_TEAM int pitch() const { return static_cast<int>(plan.nheads) * plan.headdim; }
  /// The first rank's row of step t in y and dV.
  SSMBENCH_TEAM int left_of(int t) const {
    const int chunk = t / kChunkSteps<Form>;
    const int first = chunk * static_cast<int>(plan.nheads) * kSteps + t % kChunkSteps<Form> * kRanks;
    return first * kMaxHeaddim;
  }

  template <bool kGated, bool kReduces>
  SSMBENCH_TEAM StepWords<kReduces> load_step(const Places& of, int t) const {
    const Mamba3Args& in = args.in;
    const std::int64_t at = of.step + t * pitch();
    const std::int64_t left = of.left + left_of(t);
    const void* const y = Io::element(static_cast<const void*>(work.y), left);
    const void* const dv = Io::element(static_cast<const void*>(work.dv), left);
    StepWords<kReduces> words;
    for (int r = 0; r < kRanks; ++r) {
      words.y[r] = Io::load_word(y, r * kMaxHeaddim);
      words.dv[r] = Io::load_word(dv, r * kMaxHeaddim);
    }
    if constexpr (kReduces) {
      words.dout[0] = Io::load_word(args.dout, at);
    } else {
      for (int r = 0; r < kRanks; ++r)
        words.dout[r] = Io::load_word(args.dout, of.ranked + (t * kRanks + r) * pitch());
    }
    words.v = Io::load_word(in.V, at);
    words.z = kGated ? Io::load_word(in.Z, at) : Word{};
    return words;
  }

  template <bool kGated, bool kReduces>
  SSMBENCH_TEAM void lower_step(const StepWords<kReduces>& words, const Places& places, int t, int p,
                                float skip, Columns& columns) const {
    const Pair v = Io::unpack_word(words.v);
    const Pair z = Io::unpack_word(words.z);
    Pair dV{};
    Pair dZ{};
    for (int r = 0; r < kRanks; ++r) {
      const Pair ups = factors_of(0, r, p);
      const Pair gates = factors_of(1, r, p);
      const Pair downs = factors_of(2, r, p);
      const Pair y = Io::unpack_word(words.y[r]);
      const Pair dv = Io::unpack_word(words.dv[r]);
      const Pair douts = Io::unpack_word(words.dout[kReduces ? 0 : r]);
      for (int i = 0; i < 2; ++i) {
        const float up = ups.x[i];
        const float raised = v.x[i] * up;
        const float dout = douts.x[i];
        const float of_y = dout * downs.x[i];
        const float full = y.x[i] + skip * raised;
        const ValueSlope gate = kGated ? gate_of(z.x[i] * gates.x[i]) : ValueSlope{1.0F, 0.0F};
        const float dy = of_y * gate.value;
        const float of_rank = dv.x[i] + skip * dy;
        dV.x[i] += of_rank * up;
        columns.of_up[r].x[i] += of_rank * v.x[i];
        if constexpr (kGated) {  // y may not be there otherwise
          const float dz = of_y * full * gate.slope;
          dZ.x[i] += dz * gates.x[i];
          columns.of_gate[r].x[i] += dz * z.x[i];
        }
        columns.of_down[r].x[i] += dout * full * gate.value;
        columns.of_skip.x[i] += dy * raised;
      }
    }
    if (t == places.final_step) {
      const Pair last = Io::unpack_word(
          Io::load_word(args.dfinal_v, (row.sequence * plan.nheads + row.head) * plan.headdim + p));
      for (int i = 0; i < 2; ++i) dV.x[i] += last.x[i];
    }
    const std::int64_t at = places.step + t * pitch();
    Io::store_pair(args.dV, at, dV);
    if constexpr (kGated) Io::store_pair(args.dZ, at, dZ);
  }
};

/// The gradients of a head's factors and of D: sums over sequences and spans, column `first` and those after it.
template <class Team>
SSMBENCH_TEAM void add_spans(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& from,
                             std::int64_t head, int first, float* parts, const Team& team) {
  const int each = plan.ranks * plan.headdim;
  add_columns(
      from.span_sums, all_spans(plan, from), plan.nheads, plan.factor_sums, head, first, parts, team,
      [&](int column, float sum) {
        if (column == 3 * each) {
          if (args.dD != nullptr) args.dD[head] = sum;
          return;
        }
        if (column < each && args.in.input_v != nullptr)
          for (std::int64_t sequence = 0; sequence < plan.sequences; ++sequence)
            sum += from.first_ups[(sequence * plan.nheads + head) * each + column];
        float* const to = column < each ? args.dmimo_v : column < 2 * each ? args.dmimo_z : args.dmimo_out;
        if (to != nullptr) to[head * each + column % each] = sum;
      });
}

}  // namespace ssmbench::mamba3_bwd
