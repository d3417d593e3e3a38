// What cuda-chunked's gradients of Mamba-3 are made of on the CPU: the code around the products as it is, elements
// of its loops in any order, and the products by their definition, operands rounded as the kernels round them.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "catch.h"
#include "inputs/distributions.h"
#include "inputs/inputs.h"
#include "kernels/common/activations.h"
#include "kernels/common/cpu/io_types.h"
#include "kernels/mamba3/bind.h"
#include "kernels/mamba3/tensor_bwd/finish.h"
#include "reference/reference.h"
#include "support/host_tensors.h"
#include "support/mamba3_problem.h"
#include "verify/compare.h"
#include "verify/describe.h"

using namespace ssmbench;
using namespace ssmbench::test;
using namespace ssmbench::mamba3_bwd;

namespace {

struct HostBf16 {
  static float load(const void* data, std::int64_t at) {
    return Bf16::load(static_cast<const std::uint16_t*>(data)[at]);
  }
  static void store(void* data, std::int64_t at, float value) {
    static_cast<std::uint16_t*>(data)[at] = Bf16::store(value);
  }
  static Octet load_octet(const void* data, std::int64_t at) {
    Octet octet{};
    for (int i = 0; i < kOctet; ++i) octet.state[i] = load(data, at + i);
    return octet;
  }
  static void store_octet(void* data, std::int64_t at, const Octet& octet) {
    for (int i = 0; i < kOctet; ++i) store(data, at + i, octet.state[i]);
  }
};

float rounded(float x) {
  return Bf16::load(Bf16::store(x));
}

/// A block whose threads come in an order of their own in each loop.
class ShuffledTeam {
 public:
  explicit ShuffledTeam(unsigned seed) : random_(seed) {}

  template <class Body>
  void for_all(int count, const Body& body) const {
    std::vector<int> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (const int i : order) body(i);
  }

 private:
  mutable std::mt19937 random_;
};

using Floats = std::vector<float>;

/// The products: what SSD's states kernels and the gradient kernel do, a row at a time.
class Products {
 public:
  Products(const Mamba3BwdArgs& args, const Plan& plan, const Workspace& work)
      : args_(args),
        plan_(plan),
        work_(work),
        states_(plan.rows),
        dstates_(plan.rows),
        vectors_(kSteps * plan.dstate),
        inputs_(kSteps * plan.headdim),
        square_(kSteps * kSteps) {}

  void run() {
    for (std::int64_t head = 0; head < plan_.batch * plan_.nheads; ++head) {
      walk(head, true);
      walk(head, false);
    }
    for (std::int64_t row = 0; row < plan_.rows; ++row) take(Row(plan_, row));
  }

 private:
  std::int64_t elements() const { return std::int64_t{plan_.headdim} * plan_.dstate; }
  float step(const Row& row, int which, int t) const {
    return work_.steps[(row.index * kStepFloats + which) * kSteps + t];
  }
  float vector(const void* data, const Row& row, int t, int n) const {
    return t < row.steps ? HostBf16::load(data, row.step(plan_, t) * plan_.dstate + n) : 0.0F;
  }
  float input(const void* data, const Row& row, int t, int p) const {
    return t < row.steps ? HostBf16::load(data, row.step(plan_, t) * plan_.headdim + p) : 0.0F;
  }
  ValueSlope gate(const Row& row, int t, int p) const {
    return args_.in.Z == nullptr ? ValueSlope{1.0F, 0.0F} : silu_slope(input(args_.in.Z, row, t, p));
  }
  float dy(const Row& row, int t, int p) const {
    return input(args_.dout, row, t, p) * gate(row, t, p).value;
  }

  /// The states entering chunks, or the gradients of those leaving them.
  void walk(std::int64_t head, bool forward) {
    Floats state(elements(), 0.0F);
    const float* const first =
        forward ? (args_.in.input_ssm == nullptr ? nullptr : work_.seeds) : args_.dfinal_ssm;
    if (first != nullptr) state.assign(first + head * elements(), first + (head + 1) * elements());
    for (std::int64_t i = 0; i < plan_.chunks; ++i) {
      const std::int64_t chunk = forward ? i : plan_.chunks - 1 - i;
      const Row row(plan_, plan_.row(head / plan_.nheads, chunk, head % plan_.nheads, plan_.nheads));
      Floats& image = (forward ? states_ : dstates_)[row.index];
      image = state;
      for (float& x : image) x = rounded(x);
      for (float& x : state) x *= step(row, kStepEnter, kSteps - 1);
      for (int t = 0; t < row.steps; ++t)
        for (int p = 0; p < plan_.headdim; ++p) {
          const float weight =
              forward ? step(row, kStepDelta, t) * step(row, kStepLeave, t) : step(row, kStepEnter, t);
          const float left = rounded(weight * (forward ? input(args_.in.V, row, t, p) : dy(row, t, p)));
          for (int n = 0; n < plan_.dstate; ++n)
            state[p * plan_.dstate + n] += left * vector(forward ? work_.k : work_.q, row, t, n);
        }
    }
    if (!forward && args_.dinput_ssm != nullptr)
      std::copy(state.begin(), state.end(), args_.dinput_ssm + head * elements());
  }

  void take(const Row& row) {
    const int P = plan_.headdim;
    const int N = plan_.dstate;
    const Floats& S = states_[row.index];
    const Floats& G = dstates_[row.index];
    Floats q(kSteps * N), k(kSteps * N), x(kSteps * P), d(kSteps * P), dC(kSteps * N), dB(kSteps * N);
    for (int t = 0; t < kSteps; ++t) {
      for (int n = 0; n < N; ++n) {
        q[t * N + n] = vector(work_.q, row, t, n);
        k[t * N + n] = vector(work_.k, row, t, n);
      }
      for (int p = 0; p < P; ++p) {
        x[t * P + p] = input(args_.in.V, row, t, p);
        d[t * P + p] = rounded(dy(row, t, p));
      }
    }
    Floats M(kSteps * kSteps, 0.0F), Q(M);
    Floats out(kSteps, 0.0F), into(out), column(out), own(out);
    for (int t = 0; t < kSteps; ++t)
      for (int s = 0; s <= t; ++s) {
        float cb = 0, dyx = 0;
        for (int n = 0; n < N; ++n) cb += q[t * N + n] * k[s * N + n];
        for (int p = 0; p < P; ++p) dyx += d[t * P + p] * x[s * P + p];
        const float L = std::exp(step(row, kStepDecay, t) - step(row, kStepDecay, s));
        const float w = s == t ? work_.owns[row.index * kSteps + s] : step(row, kStepDelta, s);
        M[t * kSteps + s] = rounded(cb * L * w);
        Q[t * kSteps + s] = rounded(dyx * L * w);
        if (s == t) own[t] = cb * dyx;
        if (s == t) continue;
        out[t] += cb * dyx * L * w;
        column[s] += cb * dyx * L;
      }
    float skip_sum = 0;
    const float skip = args_.in.D == nullptr ? 0.0F : args_.in.D[row.head];
    for (int t = 0; t < row.steps; ++t)
      for (int p = 0; p < P; ++p) {
        float y = 0, u = 0;
        for (int n = 0; n < N; ++n) {
          y += q[t * N + n] * S[p * N + n];
          u += k[t * N + n] * G[p * N + n];
        }
        y *= step(row, kStepEnter, t);
        u *= step(row, kStepLeave, t);
        out[t] += d[t * P + p] * y;
        into[t] += x[t * P + p] * u;
        u *= step(row, kStepDelta, t);
        for (int s = 0; s < kSteps; ++s) {
          y += M[t * kSteps + s] * x[s * P + p];
          u += M[s * kSteps + t] * d[s * P + p];
        }
        const std::int64_t at = row.step(plan_, t) * P + p;
        if (args_.dZ != nullptr)
          HostBf16::store(args_.dZ, at,
                          input(args_.dout, row, t, p) * (y + skip * x[t * P + p]) * gate(row, t, p).slope);
        u += skip * dy(row, t, p);
        if (args_.dfinal_v != nullptr && row.start + t + 1 == plan_.seqlen)
          u += HostBf16::load(args_.dfinal_v, (row.b * plan_.nheads + row.head) * P + p);
        HostBf16::store(args_.dV, at, u);
        skip_sum += dy(row, t, p) * x[t * P + p];
      }
    float through = 0;
    for (std::int64_t i = 0; i < elements(); ++i) through += S[i] * G[i];
    float* const flows = work_.flows + row.index * kFlowRows * kSteps;
    for (int t = 0; t < kSteps; ++t) {
      flows[kFlowOut * kSteps + t] = out[t] - step(row, kStepDelta, t) * column[t];
      flows[kFlowIn * kSteps + t] = step(row, kStepDelta, t) * into[t];
      flows[kFlowScale * kSteps + t] = column[t] + into[t];
      flows[kFlowOwn * kSteps + t] = own[t];
    }
    flows[kFlowOut * kSteps + kSteps - 1] += step(row, kStepEnter, kSteps - 1) * through;
    for (int t = 0; t < row.steps; ++t)
      for (int n = 0; n < N; ++n) {
        float c = 0, b = 0;
        for (int p = 0; p < P; ++p) {
          c += d[t * P + p] * S[p * N + n];
          b += x[t * P + p] * G[p * N + n];
        }
        c *= step(row, kStepEnter, t);
        b *= step(row, kStepDelta, t) * step(row, kStepLeave, t);
        for (int s = 0; s < kSteps; ++s) {
          c += Q[t * kSteps + s] * k[s * N + n];
          b += Q[s * kSteps + t] * q[s * N + n];
        }
        if (args_.dfinal_k != nullptr && row.start + t + 1 == plan_.seqlen)
          b += args_.dfinal_k[(row.b * plan_.nheads + row.head) * N + n];
        dC[t * N + n] = c;
        dB[t * N + n] = b;
      }
    float* const sums = work_.row_sums + row.index * plan_.sums;
    std::fill_n(sums, plan_.sums, 0.0F);
    sums[2 * N] = skip_sum;
    std::fill_n(work_.turns + row.index * plan_.angles, plan_.angles, 0.0F);
    for (int t = 0; t < row.steps; ++t) turn_back(row, t, q, k, dC, dB, sums);
  }

  void turn_back(const Row& row, int t, const Floats& q, const Floats& k, Floats& dC, Floats& dB,
                 float* sums) {
    const int N = plan_.dstate;
    for (int pair = 0; pair < N / 2; ++pair) {
      const int at = t * N + 2 * pair;
      if (pair < plan_.angles) {
        const std::int64_t angle_at = row.step(plan_, t) * plan_.angles + pair;
        const float angle = kTurnInRadians * turns_of_phase(work_.starts[row.index * plan_.angles + pair] +
                                                            work_.phases[angle_at]);
        const float dtheta =
            q[at] * dC[at + 1] - q[at + 1] * dC[at] + k[at] * dB[at + 1] - k[at + 1] * dB[at];
        work_.dtheta[angle_at] = dtheta;
        work_.turns[row.index * plan_.angles + pair] += dtheta;
        for (Floats* x : {&dC, &dB}) {
          const float x0 = (*x)[at];
          const float x1 = (*x)[at + 1];
          (*x)[at] = x0 * std::cos(angle) + x1 * std::sin(angle);
          (*x)[at + 1] = x1 * std::cos(angle) - x0 * std::sin(angle);
        }
      }
      for (int n = 2 * pair; n < 2 * pair + 2; ++n) {
        sums[n] += dC[t * N + n];
        sums[N + n] += dB[t * N + n];
        HostBf16::store(work_.q, row.step(plan_, t) * N + n, dC[t * N + n]);
        HostBf16::store(work_.k, row.step(plan_, t) * N + n, dB[t * N + n]);
      }
    }
  }

  const Mamba3BwdArgs& args_;
  const Plan& plan_;
  const Workspace& work_;
  std::vector<Floats> states_, dstates_;
  Floats vectors_, inputs_, square_;
};

/// All outputs, from a workspace full of NaN.
std::vector<HostTensor> emulated(const Problem& problem, const std::vector<HostTensor>& inputs,
                                 unsigned seed) {
  std::vector<HostTensor> outputs;
  for (const auto& spec : specs_of(problem, Role::output)) {
    outputs.emplace_back(spec);
    std::memset(outputs.back().buffer.data(), 0xFF, outputs.back().buffer.bytes());
  }
  TensorSet tensors = views_of(inputs);
  for (const auto& output : outputs) tensors.add(output.spec.name, output.view());
  const Mamba3BwdArgs args = bind_mamba3_bwd(problem, tensors);
  const Plan plan(args.in.scan);
  std::vector<std::uint32_t> memory(plan.bytes / sizeof(std::uint32_t), 0xFFFFFFFFU);
  const Workspace work(plan, memory.data());
  const ShuffledTeam team(seed);
  const std::int64_t heads = plan.batch * plan.nheads;
  IncrementMemory increments{};
  for (std::int64_t row = 0; row < plan.rows; ++row)
    add_increments<HostBf16>(args.in, plan, work, Row(plan, row), increments, team);
  for (std::int64_t at = 0; at < heads * plan.angles; ++at) add_starts(args.in, plan, work, at);
  if (args.in.input_ssm != nullptr)
    for (std::int64_t at = 0; at < heads * plan.headdim * plan.dstate; ++at)
      make_seed<HostBf16>(args.in, plan, work, at);
  Floats decays(kSteps);
  for (std::int64_t row = 0; row < plan.rows; ++row)
    Preparation<HostBf16, ShuffledTeam>{args.in, plan, work, decays.data(), Row(plan, row), team}.run();
  Products(args, plan, work).run();
  for (std::int64_t at = 0; at < heads * plan.angles; ++at) add_turns(args, plan, work, at);
  Floats scratch(std::max(kMaxStates, kSumParts * kSumColumns));
  if (args.dinput_ssm != nullptr)
    for (std::int64_t head = 0; head < heads; ++head)
      store_start<HostBf16>(args, plan, work, head, scratch.data(), team);
  FinishMemory finish{};
  for (std::int64_t row = 0; row < plan.rows; ++row)
    Finish<HostBf16, ShuffledTeam>{args, plan, work, finish, Row(plan, row), team}.run();
  for (std::int64_t at = 0; at < plan.batch * plan.seqlen * plan.groups * plan.dstate / kOctet; ++at)
    add_heads<HostBf16>(args, plan, work, at);
  for (std::int64_t head = 0; head < plan.nheads; ++head)
    for (int first = 0; first < plan.sums; first += kSumColumns)
      add_rows(args, plan, work, head, first, scratch.data(), team);
  return outputs;
}

/// What is wrong; nothing where all is right.
std::string failures_of(const Problem& problem, const InputSpec& spec) {
  const auto inputs = generate_inputs(problem, spec, never_stop);
  const auto reference = compute_reference(problem, views_of(inputs), never_stop);
  std::string failures;
  for (const auto& output : emulated(problem, inputs, 1)) {
    const auto comparison = compare_output(output.view(), reference.at(output.spec.name).expectation(),
                                           {.math = Math::bf16, .state_dtype = DType::bf16});
    if (!comparison.passed()) failures += output.spec.name + ": " + why_failed(comparison) + "\n";
  }
  return failures;
}

}  // namespace

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
                                       {"z", turn % 3 != 1},
                                       {"D", turn % 4 != 3},
                                       {"initial_states", turn % 2 == 1},
                                       {"final_states", turn % 5 > 1}},
                                      mamba3_siso_bwd()));
    ++turn;
  }
  for (const std::int64_t dstate : {72, 128})  // two tiles of states
    problems.push_back(mamba3_problem({{"dtype", "bf16"},
                                       {"seqlen", size(130)},
                                       {"nheads", size(2)},
                                       {"headdim", size(64)},
                                       {"dstate", dstate},
                                       {"rope_angles", dstate == 72 ? size(36) : size(32)},
                                       {"z", dstate == 72},
                                       {"D", true},
                                       {"initial_states", dstate == 72},
                                       {"final_states", dstate == 72}},
                                      mamba3_siso_bwd()));
  for (const auto& problem : problems)
    for (const auto& distribution : distributions()) {
      INFO(problem.id() << " " << distribution.name);
      CHECK(failures_of(problem, {.distribution = distribution.name}) == "");
    }
}
