// What cuda-chunked's gradients of Mamba-3 are made of on the CPU: the code around the products as it is, elements
// of its loops in any order, and the products by their definition, operands rounded as the kernels round them.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "catch.h"
#include "inputs/distributions.h"
#include "kernels/common/activations.h"
#include "kernels/common/cpu/io_types.h"
#include "kernels/mamba3/emulated_gradients.h"
#include "kernels/mamba3/hopper_bwd/phases.h"
#include "kernels/mamba3/shuffled_team.h"
#include "kernels/mamba3/tensor_bwd/factors.h"
#include "support/mamba3_problem.h"

using namespace ssmbench;
using namespace ssmbench::test;
using namespace ssmbench::mamba3_bwd;

namespace {

struct HostBf16 {
  using Word = std::uint32_t;
  static const void* element(const void* data, std::int64_t at) {
    return static_cast<const std::uint16_t*>(data) + at;
  }
  static void* element(void* data, std::int64_t at) { return static_cast<std::uint16_t*>(data) + at; }
  static float load(const void* data, std::int64_t at) {
    return Bf16::load(static_cast<const std::uint16_t*>(data)[at]);
  }
  static void store(void* data, std::int64_t at, float value) {
    static_cast<std::uint16_t*>(data)[at] = Bf16::store(value);
  }
  static std::uint32_t load_word(const void* data, std::int64_t at) {
    std::uint32_t word = 0;
    std::memcpy(&word, static_cast<const std::uint16_t*>(data) + at, sizeof word);
    return word;
  }
  static Pair unpack_word(std::uint32_t word) {
    std::uint16_t of[2];
    std::memcpy(of, &word, sizeof word);
    return {{Bf16::load(of[0]), Bf16::load(of[1])}};
  }
  static void store_pair(void* data, std::int64_t at, const Pair& pair) {
    for (int i = 0; i < 2; ++i) store(data, at + i, pair.x[i]);
  }
  static Octet load_octet(const void* data, std::int64_t at) {
    Octet octet{};
    for (int i = 0; i < kOctet; ++i) octet.state[i] = load(data, at + i);
    return octet;
  }
  static Octet load_floats(const float* data) {
    Octet octet{};
    std::copy_n(data, kOctet, octet.state);
    return octet;
  }
  static Octet load_halves(const void* data, std::int64_t at, int apart) {
    Octet octet{};
    for (int i = 0; i < kOctet; ++i) octet.state[i] = load(data, at + i / 2 + i % 2 * apart);
    return octet;
  }
  static Octet load_float_halves(const float* data, int apart) {
    Octet octet{};
    for (int i = 0; i < kOctet; ++i) octet.state[i] = data[i / 2 + i % 2 * apart];
    return octet;
  }
  static void store_halves(void* data, std::int64_t at, int apart, const Octet& octet) {
    for (int i = 0; i < kOctet; ++i) store(data, at + i / 2 + i % 2 * apart, octet.state[i]);
  }
  template <bool kIsFloat>
  static float load_rate(const void* data, std::int64_t at) {
    return kIsFloat ? static_cast<const float*>(data)[at] : load(data, at);
  }
  template <bool kIsFloat>
  static void load_rates(float (&to)[4], const void* data, std::int64_t at) {
    for (int i = 0; i < 4; ++i) to[i] = load_rate<kIsFloat>(data, at + i);
  }
  template <bool kIsFloat>
  static void store_rate(void* data, std::int64_t at, float value) {
    if (kIsFloat)
      static_cast<float*>(data)[at] = value;
    else
      store(data, at, value);
  }
  template <class T>
  static void load_shared(T (&to)[4], const T* data) {
    std::copy_n(data, 4, to);
  }
  static void prefetch(const void* /*data*/) {}
  template <class T>
  static T fetch(const T* data) {
    return *data;
  }
  template <class T>
  static void store_words(T* data, const T (&from)[4]) {
    std::copy_n(from, 4, data);
  }
  static void store_octet(void* data, std::int64_t at, const Octet& octet) {
    for (int i = 0; i < kOctet; ++i) store(data, at + i, octet.state[i]);
  }
};

float rounded(float x) {
  return Bf16::load(Bf16::store(x));
}

using Floats = std::vector<float>;

/// The products: what SSD's states kernels and the gradient kernel do, a row of the plan at a time.
class Products {
 public:
  Products(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& work)
      : args_(args),
        plan_(plan),
        work_(work),
        is_mimo_(args.in.scan.is_mimo),
        ranks_(plan.ranks),
        headdim_(plan.headdim),
        dstate_(plan.dstate),
        states_(plan.rows),
        dstates_(plan.rows) {}

  void run() {
    for (std::int64_t head = 0; head < plan_.sequences * plan_.nheads; ++head) {
      walk(head, true);
      walk(head, false);
    }
    for (std::int64_t index = 0; index < plan_.rows; ++index) {
      const Row row(plan_, index, work_.table.spans);
      if (row.steps == 0) continue;
      load(row);
      take_squares(row);
      take_inputs(row);
      take_vectors(row);
      store_flows(row);
      turn_back(row);
    }
  }

 private:
  std::int64_t elements() const { return std::int64_t{headdim_} * dstate_; }
  std::int64_t state_at(const Row& row) const { return row.sequence * plan_.nheads + row.head; }
  /// Rows of the chunk are (step, rank).
  bool is_last(const Row& row, int t) const { return row.closes && t / ranks_ + 1 == row.steps; }
  float step(const Row& row, int which, int t) const {
    return work_.steps[(row.index * kStepFloats + which) * kSteps + t];
  }
  float vector(const void* data, const Row& row, int t, int n) const {
    return t < row.rows(plan_) ? HostBf16::load(data, row.ranked(plan_, t) * dstate_ + n) : 0.0F;
  }
  float input(const void* data, const Row& row, int t, int p) const {
    return t < row.rows(plan_) ? HostBf16::load(data, row.ranked(plan_, t) * headdim_ + p) : 0.0F;
  }
  ValueSlope gate(const Row& row, int t, int p) const {
    return args_.in.Z == nullptr ? ValueSlope{1.0F, 0.0F} : silu_slope(input(args_.in.Z, row, t, p));
  }
  const void* inputs() const { return is_mimo_ ? work_.v : args_.in.V; }
  float dy(const Row& row, int t, int p) const {
    if (is_mimo_) return input(work_.dy, row, t, p);
    return input(args_.dout, row, t, p) * gate(row, t, p).value;
  }

  /// The states entering chunks, or the gradients of those leaving them.
  void walk(std::int64_t head, bool forward) {
    Floats state(elements(), 0.0F);
    const float* const seed = args_.in.input_ssm == nullptr ? nullptr : work_.seeds;
    const float* const last =
        args_.dfinal_ssm != nullptr && plan_.halves ? work_.last_adjoint : args_.dfinal_ssm;
    const float* const first = forward ? seed : last;
    if (first != nullptr) state.assign(first + head * elements(), first + (head + 1) * elements());
    const ChunkRun chunks = chunks_of(plan_, work_, head / plan_.nheads);
    for (std::int64_t i = 0; i < chunks.count; ++i) {
      const std::int64_t chunk = chunks.first + (forward ? i : chunks.count - 1 - i);
      const Row row(plan_, chunk * plan_.nheads + head % plan_.nheads, work_.table.spans);
      Floats& image = (forward ? states_ : dstates_)[row.index];
      image = state;
      for (float& x : image) x = rounded(x);
      for (float& x : state) x *= step(row, kStepEnter, kSteps - 1);
      for (int t = 0; t < row.rows(plan_); ++t)
        for (int p = 0; p < headdim_; ++p) {
          const float weight =
              forward ? step(row, kStepDelta, t) * step(row, kStepLeave, t) : step(row, kStepEnter, t);
          const float left = rounded(weight * (forward ? input(inputs(), row, t, p) : dy(row, t, p)));
          for (int n = 0; n < dstate_; ++n)
            state[p * dstate_ + n] += left * vector(forward ? work_.k : work_.q, row, t, n);
        }
    }
    if (!forward && args_.dinput_ssm != nullptr)
      std::copy(state.begin(), state.end(), first_adjoint_of(args_, plan_, work_) + head * elements());
  }

  void load(const Row& row) {
    for (int t = 0; t < kSteps; ++t) {
      for (int n = 0; n < dstate_; ++n) {
        q_[t * dstate_ + n] = vector(work_.q, row, t, n);
        k_[t * dstate_ + n] = vector(work_.k, row, t, n);
      }
      for (int p = 0; p < headdim_; ++p) {
        v_[t * headdim_ + p] = input(inputs(), row, t, p);
        dy_[t * headdim_ + p] = rounded(dy(row, t, p));
      }
      out_[t] = into_[t] = column_[t] = own_[t] = 0;
    }
  }

  /// M and X.
  void take_squares(const Row& row) {
    for (int t = 0; t < kSteps; ++t)
      for (int u = 0; u < kSteps; ++u) {
        const int at = t * kSteps + u;
        mixing_[at] = crosses_[at] = 0;
        const bool is_own = u / ranks_ == t / ranks_;
        if (u > t && !is_own) continue;
        float score = 0;
        float cross = 0;
        for (int n = 0; n < dstate_; ++n) score += q_[t * dstate_ + n] * k_[u * dstate_ + n];
        for (int p = 0; p < headdim_; ++p) cross += dy_[t * headdim_ + p] * v_[u * headdim_ + p];
        const float decay = std::exp(step(row, kStepDecay, t) - step(row, kStepDecay, u));
        const float weight = is_own ? work_.owns[row.index * kSteps + u] : step(row, kStepDelta, u);
        mixing_[at] = rounded(score * decay * weight);
        crosses_[at] = rounded(cross * decay * weight);
        if (is_own) {
          own_[t] += score * cross;
          continue;
        }
        out_[t] += score * cross * decay * weight;
        column_[u] += score * cross * decay;
      }
  }

  /// dV and dZ.
  void take_inputs(const Row& row) {
    const float skip = args_.in.D == nullptr ? 0.0F : args_.in.D[row.head];
    float skips = 0;
    for (int t = 0; t < row.rows(plan_); ++t)
      for (int p = 0; p < headdim_; ++p) {
        float y = 0;
        float u = 0;
        for (int n = 0; n < dstate_; ++n) {
          y += q_[t * dstate_ + n] * states_[row.index][p * dstate_ + n];
          u += k_[t * dstate_ + n] * dstates_[row.index][p * dstate_ + n];
        }
        out_[t] += rounded(step(row, kStepEnter, t) * dy_[t * headdim_ + p]) * y;
        y *= step(row, kStepEnter, t);
        u *= step(row, kStepLeave, t);
        const float v = v_[t * headdim_ + p];
        into_[t] += v * u;
        u *= step(row, kStepDelta, t);
        for (int s = 0; s < kSteps; ++s) {
          y += mixing_[t * kSteps + s] * v_[s * headdim_ + p];
          u += mixing_[s * kSteps + t] * dy_[s * headdim_ + p];
        }
        const std::int64_t at = is_mimo_ ? row.left(t) + p : row.ranked(plan_, t) * headdim_ + p;
        if (is_mimo_) {
          HostBf16::store(work_.y, at, y);
          HostBf16::store(work_.dv, at, u);
          continue;
        }
        if (args_.dZ != nullptr)
          HostBf16::store(args_.dZ, at,
                          input(args_.dout, row, t, p) * (y + skip * v) * gate(row, t, p).slope);
        u += skip * dy(row, t, p);
        if (args_.dfinal_v != nullptr && is_last(row, t))
          u += HostBf16::load(args_.dfinal_v, state_at(row) * headdim_ + p);
        HostBf16::store(args_.dV, at, u);
        skips += dy(row, t, p) * v;
      }
    float* const sums = work_.row_sums + row.index * plan_.sums;
    std::fill_n(sums, plan_.sums, 0.0F);
    if (!is_mimo_) sums[2 * dstate_] = skips;
  }

  /// dq and dk.
  void take_vectors(const Row& row) {
    for (int t = 0; t < row.rows(plan_); ++t)
      for (int n = 0; n < dstate_; ++n) {
        const float enter = step(row, kStepEnter, t);
        const float leave = step(row, kStepDelta, t) * step(row, kStepLeave, t);
        float dq = 0;
        float dk = 0;
        for (int p = 0; p < headdim_; ++p) {
          dq += rounded(enter * dy_[t * headdim_ + p]) * states_[row.index][p * dstate_ + n];
          dk += rounded(leave * v_[t * headdim_ + p]) * dstates_[row.index][p * dstate_ + n];
        }
        for (int s = 0; s < kSteps; ++s) {
          dq += crosses_[t * kSteps + s] * k_[s * dstate_ + n];
          dk += crosses_[s * kSteps + t] * q_[s * dstate_ + n];
        }
        if (args_.dfinal_k != nullptr && is_last(row, t))
          dk += args_.dfinal_k[k_state_at(plan_, state_at(row), t % ranks_) + plan_.state_of(n)];
        dq_[t * dstate_ + n] = dq;
        dk_[t * dstate_ + n] = dk;
      }
  }

  void store_flows(const Row& row) const {
    float through = 0;
    for (std::int64_t i = 0; i < elements(); ++i) through += states_[row.index][i] * dstates_[row.index][i];
    float* const flows = work_.flows + row.index * mamba3_bwd::kFlowRows * kSteps;
    std::fill_n(flows, mamba3_bwd::kFlowRows * kSteps, 0.0F);
    for (int i = 0; i < kSteps; ++i) {
      const int t = i / ranks_;
      flows[mamba3_bwd::kFlowOut * kSteps + t] += out_[i] - step(row, kStepDelta, i) * column_[i];
      flows[mamba3_bwd::kFlowIn * kSteps + t] += step(row, kStepDelta, i) * into_[i];
      flows[kFlowScale * kSteps + t] += column_[i] + into_[i];
      flows[kFlowOwn * kSteps + t] += own_[i];
    }
    flows[mamba3_bwd::kFlowOut * kSteps + plan_.chunk_steps - 1] +=
        step(row, kStepEnter, kSteps - 1) * through;
  }

  void turn_back(const Row& row) {
    std::fill_n(work_.turns + row.index * plan_.angles, plan_.angles, 0.0F);
    float* const sums = work_.row_sums + row.index * plan_.sums;
    // The pairs of a tile that do not exist, too.
    float* const tiles = work_.dtheta + plan_.angle_tile(row.index, 0);
    std::fill_n(tiles, plan_.angle_tiles * plan_.angle_elements(), 1.0F);
    for (int t = 0; t < row.rows(plan_); ++t) {
      float* const of_rank = sums + t % ranks_ * dstate_;
      for (int pair = 0; pair < plan_.angles; ++pair) turn_pair_back(row, t, pair);
      for (int n = 0; n < dstate_; ++n) {
        of_rank[n] += dq_[t * dstate_ + n];
        of_rank[ranks_ * dstate_ + n] += dk_[t * dstate_ + n];
        work_.dq[row.ranked(plan_, t) * dstate_ + n] = dq_[t * dstate_ + n];
        work_.dk[row.ranked(plan_, t) * dstate_ + n] = dk_[t * dstate_ + n];
      }
    }
  }
  int offset_of(int t, int pair) const {
    return ranks_ == 1   ? angle_offset<1>(t, pair)
           : ranks_ == 2 ? angle_offset<2>(t, pair)
           : ranks_ == 4 ? angle_offset<4>(t, pair)
                         : angle_offset<8>(t, pair);
  }
  void turn_pair_back(const Row& row, int t, int pair) {
    const int at = t * dstate_ + 2 * pair;
    const std::int64_t angle =
        plan_.angle_tile(row.index, pair / kTilePairs) + offset_of(t / ranks_, pair % kTilePairs);
    const float dtheta =
        q_[at] * dq_[at + 1] - q_[at + 1] * dq_[at] + k_[at] * dk_[at + 1] - k_[at + 1] * dk_[at];
    if (t % ranks_ == 0) work_.dtheta[angle] = 0;
    work_.dtheta[angle] += dtheta;
    work_.turns[row.index * plan_.angles + pair] += dtheta;
    const Turn turn = turn_of(work_.phases[angle]);
    for (Floats* x : {&dq_, &dk_}) {
      const float x0 = (*x)[at];
      const float x1 = (*x)[at + 1];
      (*x)[at] = x0 * turn.cosine + x1 * turn.sine;
      (*x)[at + 1] = x1 * turn.cosine - x0 * turn.sine;
    }
  }

  const Mamba3BwdArgs& args_;
  const Plan& plan_;
  const Workspace& work_;
  bool is_mimo_;
  int ranks_, headdim_, dstate_;
  std::vector<Floats> states_, dstates_;  // [row][head dim][state]
  Floats q_ = Floats(kSteps * kMaxStates), k_ = q_, dq_ = q_, dk_ = q_;
  Floats v_ = Floats(kSteps * kMaxHeaddim), dy_ = v_;
  Floats mixing_ = Floats(kSteps * kSteps), crosses_ = mixing_;
  Floats out_ = Floats(kSteps), into_ = out_, column_ = out_, own_ = out_;
};

void make_table(const Mamba3Args& args, const Plan& plan, const Workspace& work, const ShuffledTeam& team) {
  std::vector<std::int32_t> runs(kSequenceRuns);
  make_sequence_table(args.cu_seqlens, plan.sequences, plan.spans, work.table, runs.data(), team);
}

/// Each block of a scan over chunks: scan(ChunkScan).
template <class T, class Scan>
void scan_all(const Plan& plan, const ShuffledTeam& team, const Scan& scan, int segments = 2) {
  std::vector<T> sums(kScanThreads);
  for (std::int64_t block = 0; block < scan_blocks(plan, segments); ++block)
    scan(ChunkScan<T, ShuffledTeam>{plan, block, segments, sums.data(), team});
}

/// All kernels of a problem, in the order of their launch.
template <class Form>
void run(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& work, unsigned seed) {
  const ShuffledTeam team(seed);
  const std::int64_t heads = plan.sequences * plan.nheads;
  const std::int64_t spans = plan.batch * plan.nheads * plan.spans;
  const SequenceSpan* const table = work.table.spans;
  if (plan.packed) make_table(args.in, plan, work, team);
  const std::int64_t state = std::int64_t{plan.headdim} * plan.dstate;
  std::vector<std::uint32_t> parts(kIncrementSpans * kSpanParts * kPartPitch);
  for (std::int64_t span = 0; span < spans; span += kIncrementSpans)
    add_increments<HostBf16, Form>(args.in, plan, work, span, parts.data(), team);
  scan_all<std::uint32_t>(plan, team, [&](const auto& scan) { add_starts(args.in, work, scan); });
  for (std::int64_t at = 0; at < heads * state; ++at) {
    if (args.in.input_ssm != nullptr) make_seed<HostBf16>(args.in, plan, work, at);
    if (plan.halves && args.dfinal_ssm != nullptr) copy_last_adjoint(args, plan, work, at);
  }
  const auto prepare = std::make_unique<PrepareMemory>();
  for (std::int64_t span = 0; span < spans; ++span) {
    const Span row(plan, span, table);
    if (plan.halves)
      Preparation<HostBf16, Form, true, ShuffledTeam>{args.in, plan, work, *prepare, row, true, team}.run();
    else
      Preparation<HostBf16, Form, false, ShuffledTeam>{args.in, plan, work, *prepare, row, true, team}.run();
  }
  if constexpr (Form::kIsMimo)
    for (std::int64_t at = 0; at < plan.batch * plan.seqlen * plan.nheads * plan.headdim / kOctet; ++at)
      raise_ranks<HostBf16>(args, plan, work, at);
  Products(args, plan, work).run();
  scan_all<float>(plan, team, [&](const auto& scan) { add_turns(args, work, scan); });
  Floats scratch(std::max(kMaxRanks * kMaxStates, kSumParts * kSumColumns));
  if (args.dinput_ssm != nullptr)
    for (std::int64_t head = 0; head < heads; ++head)
      store_start<HostBf16>(args, plan, work, head, scratch.data(), team);
  const auto finish = std::make_unique<FinishMemory>();
  for (std::int64_t span = 0; span < spans; ++span)
    Finish<HostBf16, Form, ShuffledTeam>{args, plan, work, *finish, Span(plan, span, table), team}.run();
  for (std::int64_t at = 0; at < plan.batch * plan.sequence_rows() * plan.groups * plan.dstate / kOctet; ++at)
    add_heads<HostBf16>(args, plan, work, at);
  for (std::int64_t head = 0; head < plan.nheads; ++head)
    for (int first = 0; first < plan.sums; first += kSumColumns)
      add_rows(args, plan, work, head, first, scratch.data(), team);
  if (!Form::kIsMimo) return;
  const auto factors = std::make_unique<FactorMemory<Form>>();
  for (std::int64_t span = 0; span < spans; ++span) {
    const Span row(plan, span, table);
    if (row.steps > 0) LowerRanks<HostBf16, Form, ShuffledTeam>{args, plan, work, *factors, row, team}.run();
  }
  for (std::int64_t head = 0; head < plan.nheads; ++head)
    for (int first = 0; first < plan.factor_sums; first += kSumColumns)
      add_spans(args, plan, work, head, first, scratch.data(), team);
}

/// All outputs, from a workspace full of NaN.
std::vector<HostTensor> emulated(const Problem& problem, const std::vector<HostTensor>& inputs,
                                 unsigned seed) {
  return outputs_of(problem, inputs, [&](const Mamba3BwdArgs& args) {
    const Plan plan(args.in.scan, HeadSums::kernel);
    std::vector<std::uint32_t> memory(plan.bytes / sizeof(std::uint32_t), 0xFFFFFFFFU);
    const Workspace work(plan, memory.data());
    if (!args.in.scan.is_mimo)
      run<Siso>(args, plan, work, seed);
    else if (plan.ranks == 1)
      run<Mimo<1>>(args, plan, work, seed);
    else if (plan.ranks == 2)
      run<Mimo<2>>(args, plan, work, seed);
    else if (plan.ranks == 4)
      run<Mimo<4>>(args, plan, work, seed);
    else
      run<Mimo<8>>(args, plan, work, seed);
  });
}

/// What is wrong; nothing where all is right.
std::string failures_of(const Problem& problem, const InputSpec& spec) {
  return test::failures_of(
      problem, spec, {.math = Math::bf16, .state_dtype = DType::bf16},
      [&](const std::vector<HostTensor>& inputs) { return emulated(problem, inputs, 1); });
}

void check_all(const std::vector<Problem>& problems) {
  for (const auto& problem : problems)
    for (const auto& distribution : distributions()) {
      INFO(problem.id() << " " << distribution.name);
      CHECK(failures_of(problem, {.distribution = distribution.name}) == "");
    }
}

}  // namespace

TEST_CASE("phases of chunks are those before gradients by mma.sync, in 16 bits", "[mamba3]") {
  for (const std::int64_t angles : {1, 6, 20, 32, 36, 64})
    for (const std::int64_t seqlen : {1, 65, 200, 300}) {
      INFO(angles << " angles, seqlen " << seqlen);
      const bool packed = seqlen == 300;
      const Problem problem = mamba3_problem({{"dtype", "bf16"},
                                              {"batch", size(packed ? 1 : 2)},
                                              {"cu_seqlens", packed},
                                              {"sequences", size(packed ? 5 : 1)},
                                              {"seqlen", seqlen},
                                              {"nheads", size(3)},
                                              {"headdim", size(8)},
                                              {"dstate", size(128)},
                                              {"rope_angles", angles},
                                              {"initial_states", seqlen >= 200}},
                                             mamba3_siso_bwd());
      outputs_of(problem, generate_inputs(problem, {}, never_stop), [&](const Mamba3BwdArgs& args) {
        const ShuffledTeam team(1);
        const auto memory_of = [](const Plan& plan) {
          return std::vector<std::uint32_t>(plan.bytes / sizeof(std::uint32_t), 0xFFFFFFFFU);
        };
        const Plan before(args.in.scan, HeadSums::kernel);
        std::vector<std::uint32_t> expected_memory = memory_of(before);
        const Workspace expected(before, expected_memory.data());
        if (packed) make_table(args.in, before, expected, team);
        const std::int64_t rows = all_chunks(before, expected) * before.nheads;  // one rank: spans, too
        std::vector<std::uint32_t> parts(kIncrementSpans * kSpanParts * kPartPitch);
        for (std::int64_t span = 0; span < rows; span += kIncrementSpans)
          add_increments<HostBf16, Siso>(args.in, before, expected, span, parts.data(), team);
        scan_all<std::uint32_t>(before, team, [&](const auto& scan) { add_starts(args.in, expected, scan); });
        const auto prepare = std::make_unique<PrepareMemory>();
        for (std::int64_t span = 0; span < rows; ++span) {
          const Span row(before, span, expected.table.spans);
          Preparation<HostBf16, Siso, false, ShuffledTeam>{args.in, before, expected, *prepare,
                                                           row,     false,  team}
              .run();
        }

        const Plan plan(args.in.scan, HeadSums::block);
        std::vector<std::uint32_t> own_memory = memory_of(plan);
        const Workspace work(plan, own_memory.data());
        if (packed) make_table(args.in, plan, work, team);
        const auto memory = std::make_unique<PhaseMemory>();
        for (std::int64_t span = 0; span < rows; ++span) {
          const Span row(plan, span, work.table.spans);
          ChunkPhases<HostBf16, ShuffledTeam>{args.in, plan, work, *memory, row, team}.run();
        }
        scan_all<std::uint32_t>(
            plan, team, [&](const auto& scan) { add_phase_starts(args.in, work, scan); }, kMaxScanSegments);

        std::uint32_t most = 0;
        for (std::int64_t row = 0; row < rows; ++row)
          for (int tile = 0; tile < plan.angle_tiles; ++tile)
            for (int vector = 0; vector < kPhaseVectors; ++vector)
              for (int element = 0; element < kPhaseElements; ++element) {
                const AngleAt at = phase_at(vector, element);
                const PhaseTile& of = phase_tile(plan, work, row, tile);
                const std::uint32_t word = of.of_steps[(vector * kPhaseElements + element) / 2];
                const std::uint32_t phase =
                    of.starts[start_slot(at.pair)] + (element % 2 == 0 ? word << 16 : word & 0xFFFF0000U);
                const std::uint32_t off =
                    phase - expected.phases[before.angle_tile(row, tile) + angle_offset(at.t, at.pair)];
                most = std::max(most, std::min(off, 0U - off));
              }
        CHECK(most <= 0x8000);
        CHECK(std::equal(work.steps, work.steps + rows * kStepFloats * kSteps, expected.steps));
        CHECK(std::equal(work.owns, work.owns + rows * kSteps, expected.owns));
      });
    }
}

TEST_CASE("the gradients of cuda-chunked, products emulated, agree with the reference", "[mamba3]") {
  std::vector<Problem> problems;
  std::size_t turn = 0;
  for (const std::int64_t seqlen : {1, 2, 63, 64, 65, 130, 257}) {
    const std::int64_t dstate = turn % 3 == 0 ? 16 : turn % 3 == 1 ? 32 : 8;
    problems.push_back(mamba3_problem({{"dtype", "bf16"},
                                       {"batch", size(2)},
                                       {"seqlen", seqlen},
                                       {"nheads", size(4)},
                                       {"groups", size(turn % 2 == 0 ? 1 : 2)},
                                       {"headdim", size(turn % 2 == 0 ? 8 : 16)},
                                       {"dstate", dstate},
                                       {"rope_angles", turn % 2 == 0 ? dstate / 2 : dstate / 4},
                                       {"rotary_pairing", turn % 4 == 1 ? "halves" : "interleaved"},
                                       {"z", turn % 3 != 1},
                                       {"D", turn % 4 != 3},
                                       {"initial_states", turn % 2 == 1},
                                       {"final_states", turn % 5 > 1}},
                                      mamba3_siso_bwd()));
    ++turn;
  }
  for (const std::int64_t sequences : {1, 3, 8})
    problems.push_back(mamba3_problem({{"dtype", "bf16"},
                                       {"seqlen", size(sequences == 8 ? 40 : 300)},
                                       {"cu_seqlens", true},
                                       {"sequences", sequences},
                                       {"nheads", size(4)},
                                       {"groups", size(2)},
                                       {"headdim", size(8)},
                                       {"dstate", size(16)},
                                       {"rope_angles", size(4)},
                                       {"z", sequences == 3},
                                       {"D", sequences != 3},
                                       {"initial_states", sequences != 1},
                                       {"final_states", sequences != 1}},
                                      mamba3_siso_bwd()));
  for (const std::int64_t dstate : {72, 128})  // two tiles of states, some of which are not turned
    problems.push_back(mamba3_problem({{"dtype", "bf16"},
                                       {"seqlen", size(130)},
                                       {"nheads", size(4)},
                                       {"headdim", size(64)},
                                       {"dstate", dstate},
                                       {"rope_angles", dstate == 72 ? size(18) : size(32)},
                                       {"z", dstate == 72},
                                       {"D", true},
                                       {"initial_states", dstate == 72},
                                       {"final_states", dstate == 72}},
                                      mamba3_siso_bwd()));
  check_all(problems);
}

TEST_CASE("the MIMO gradients of cuda-chunked, products emulated, agree with the reference", "[mamba3]") {
  std::vector<Problem> problems;
  std::size_t turn = 0;
  for (const std::int64_t rank : {1, 2, 4, 8})
    for (const std::int64_t steps : {-1, 0, 1, 67}) {  // of a chunk and so many
      const std::int64_t dstate = turn % 3 == 0 ? 16 : turn % 3 == 1 ? 32 : 8;
      const bool gated = turn % 3 != 1;
      problems.push_back(mamba3_problem({{"dtype", "bf16"},
                                         {"batch", size(2)},
                                         {"seqlen", size(kSteps / rank + steps)},
                                         {"nheads", size(4)},
                                         {"groups", size(turn % 2 == 0 ? 1 : 2)},
                                         {"headdim", size(turn % 2 == 0 ? 8 : 16)},
                                         {"dstate", dstate},
                                         {"rope_angles", turn % 2 == 0 ? dstate / 2 : dstate / 4},
                                         {"rotary_pairing", turn % 5 == 0 ? "interleaved" : "halves"},
                                         {"mimo_rank", rank},
                                         {"out_reduce", turn % 4 != 2},
                                         {"z", gated},
                                         {"D", turn % 4 != 3},
                                         {"initial_states", turn % 2 == 1},
                                         {"final_states", turn % 5 > 1}},
                                        mamba3_mimo_bwd()));
      ++turn;
    }
  for (const std::int64_t rank : {2, 4})  // two tiles of states, some of which are not turned
    problems.push_back(mamba3_problem({{"dtype", "bf16"},
                                       {"seqlen", size(70)},
                                       {"nheads", size(2)},
                                       {"headdim", size(64)},
                                       {"dstate", rank == 2 ? size(72) : size(128)},
                                       {"rope_angles", rank == 2 ? size(18) : size(32)},
                                       {"mimo_rank", rank},
                                       {"z", true},
                                       {"D", true},
                                       {"initial_states", rank == 2},
                                       {"final_states", rank == 2}},
                                      mamba3_mimo_bwd()));
  for (const std::int64_t rank : {1, 2, 4, 8})
    for (const std::int64_t sequences : {1, 3, 8})
      problems.push_back(mamba3_problem({{"dtype", "bf16"},
                                         {"seqlen", size(sequences == 8 ? 40 : 200)},
                                         {"cu_seqlens", true},
                                         {"sequences", sequences},
                                         {"nheads", size(4)},
                                         {"groups", size(2)},
                                         {"headdim", size(8)},
                                         {"dstate", size(16)},
                                         {"rope_angles", size(4)},
                                         {"mimo_rank", rank},
                                         {"out_reduce", rank != 2},
                                         {"z", sequences == 3},
                                         {"D", sequences != 3},
                                         {"initial_states", sequences != 1},
                                         {"final_states", sequences != 1}},
                                        mamba3_mimo_bwd()));
  check_all(problems);
}
