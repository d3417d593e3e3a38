#pragma once

// cuda-chunked-f32: the gradients of Mamba-3's scans in f32, every option and size.
//
//   block    takes heads of sequences, one after the other, chunk by chunk of 32 rows (step, rank); all it has
//            is in memory of its own in the workspace, most of it small enough for the caches
//   thread   elements of the matrix at hand, a tile of 4 × 4 of a product; a barrier after each matrix
//
// With U_t the state with the weight s_t that later steps see and W_t its adjoint but for what the step itself
// reads,
//
//   dq_t = U_{t-1}ᵀ·α_t·dy_t         + own     dADT_t = α_t·⟨W_t + dy_t ⊗ q_t, U_{t-1}⟩
//   dk_t = s_t·W_tᵀ·V_t              + own     c_t = ⟨W_t, V_t ⊗ k_t⟩ gives dDT and dTrap of steps t and t + 1
//   dV_t = s_t·W_t·k_t + D·dy_t      + own     own: γ_t times the products of the step's own q, k, V and dy
//
// U of a step is that which enters the chunk, with decays, and the inputs of earlier steps of the chunk; W the
// adjoint that leaves it and what later steps read. A block walks over a head's chunks forward, to keep the
// states that enter segments of 64 chunks, and over segments backward; in each forward again. Angles are
// phases, which come out the same however often they are added up.
//
// Everything is written as loops over elements that do not depend on one another, Team::for_all(), so that
// CPU tests run the same code, elements in any order.

#include <cstdint>

#include "kernels/common/scalar_math.h"
#include "kernels/mamba3/args.h"
#include "kernels/mamba3/chunked_bwd/plan.h"
#include "kernels/mamba3/chunked_bwd/team.h"
#include "kernels/mamba3/phase.h"

namespace ssmbench::mamba3 {

/// Element (row, column) at data[row·row_stride + column·column_stride].
struct Matrix {
  const float* data;
  int row_stride, column_stride;
  SSMBENCH_TEAM float at(int row, int column) const {
    return data[std::int64_t{row} * row_stride + std::int64_t{column} * column_stride];
  }
};

/// One block. Team: for_all(count, body) calls body(i) for all i < count, and returns when all is done. Io:
/// load(data, at) and store(data, at, value) of the io dtype.
template <class Io, class Team>
class HeadGradients {
 public:
  SSMBENCH_TEAM HeadGradients(const Mamba3BwdArgs& args, const GradientPlan& plan, float* workspace,
                              std::int64_t block, const Team& team)
      : out_(args),
        args_(args.in),
        scan_(args.in.scan),
        plan_(plan),
        at_(plan.memory),
        team_(team),
        workspace_(workspace),
        memory_(workspace + plan.own + block * plan.memory.floats),
        needs_y_(args.in.Z != nullptr || args.in.scan.is_mimo) {}

  /// Head `task % nheads` of sequence `task / nheads`.
  SSMBENCH_TEAM void run(std::int64_t task) {
    index_ = task / scan_.nheads;
    head_ = task % scan_.nheads;
    const bool packed = args_.cu_seqlens != nullptr;
    batch_ = packed ? 0 : index_;
    begin_ = packed ? args_.cu_seqlens[index_] : 0;
    length_ = static_cast<int>((packed ? args_.cu_seqlens[index_ + 1] : scan_.seqlen) - begin_);
    sums_ = workspace_ + plan_.head_sums + task * plan_.sums.count;
    team_.for_all(plan_.sums.count, [&](int i) { sums_[i] = 0; });
    if (length_ == 0) return pass_cotangents();
    load_state();
    const int chunks = (length_ + plan_.chunk - 1) / plan_.chunk;
    const int segments = (chunks + kSegmentChunks - 1) / kSegmentChunks;
    for (int segment = 0; segment < segments; ++segment) {
      save(memory_ + at_.entering + std::int64_t{segment} * plan_.record);
      for (int i = 0; i < kSegmentChunks && segment + 1 < segments; ++i)
        go_forward(segment * kSegmentChunks + i);
    }
    start_back();
    for (int segment = segments - 1; segment >= 0; --segment) {
      const int first = segment * kSegmentChunks;
      const int count = kSegmentChunks < chunks - first ? kSegmentChunks : chunks - first;
      restore(memory_ + at_.entering + std::int64_t{segment} * plan_.record);
      for (int i = 0; i < count; ++i) {
        save(memory_ + at_.states + std::int64_t{i} * plan_.record);
        if (i + 1 < count) go_forward(first + i);
      }
      for (int i = count - 1; i >= 0; --i) {
        restore(memory_ + at_.states + std::int64_t{i} * plan_.record);
        go_back(first + i);
      }
    }
    store_start();
    store_scalars();
  }

 private:
  // Where things are.
  SSMBENCH_TEAM float* in(std::int64_t array) const { return memory_ + array; }
  SSMBENCH_TEAM float& step_value(StepValue which, int t) const {
    return in(at_.steps)[which * plan_.chunk + t];
  }
  SSMBENCH_TEAM float& of_step(int which, std::int64_t i) const {
    return in(at_.of_steps)[which * (scan_.seqlen + 1) + i];
  }
  SSMBENCH_TEAM float& inputs(std::int64_t i) const { return of_step(0, i + 1); }  ///< from −1
  SSMBENCH_TEAM float& own_inputs(std::int64_t i) const { return of_step(1, i); }
  SSMBENCH_TEAM float& flows(std::int64_t i) const { return of_step(2, i); }
  SSMBENCH_TEAM float& turned(std::int64_t i) const { return of_step(3, i); }
  SSMBENCH_TEAM int rows() const { return steps_ * plan_.rank; }
  SSMBENCH_TEAM std::int64_t time(int t) const { return begin_ + first_ + t; }
  SSMBENCH_TEAM bool is_last(int t) const { return first_ + t + 1 == length_; }
  SSMBENCH_TEAM std::int64_t step_at(std::int64_t t) const {
    return (batch_ * scan_.seqlen + t) * scan_.nheads + head_;
  }
  SSMBENCH_TEAM std::int64_t scalar_at(std::int64_t t) const {
    return (batch_ * scan_.nheads + head_) * scan_.seqlen + t;
  }
  SSMBENCH_TEAM std::int64_t state_at() const { return index_ * scan_.nheads + head_; }
  SSMBENCH_TEAM std::int64_t k_state_at(int r) const {
    return ((index_ * plan_.rank + r) * scan_.nheads + head_) * plan_.dstate;
  }
  SSMBENCH_TEAM std::int64_t row_at(std::int64_t t, int r) const {
    const std::int64_t group = head_ / (scan_.nheads / scan_.groups);
    return (((batch_ * scan_.seqlen + t) * plan_.rank + r) * scan_.groups + group) * plan_.dstate;
  }
  SSMBENCH_TEAM std::int64_t out_at(std::int64_t t, int r) const {
    if (scan_.reduces_ranks) return step_at(t) * plan_.headdim;
    return (((batch_ * scan_.seqlen + t) * plan_.rank + r) * scan_.nheads + head_) * plan_.headdim;
  }
  SSMBENCH_TEAM float factor(const float* all, int r, int p) const {
    return all == nullptr ? 1.0F : all[(head_ * plan_.rank + r) * plan_.headdim + p];
  }
  SSMBENCH_TEAM int first_of(int pair) const { return scan_.interleaved ? 2 * pair : pair; }
  SSMBENCH_TEAM int second_of(int pair) const {
    return scan_.interleaved ? 2 * pair + 1 : pair + plan_.dstate / 2;
  }
  SSMBENCH_TEAM std::uint32_t* phases_of(float* array) const {
    return reinterpret_cast<std::uint32_t*>(array);
  }
  /// The phases before the chunk, behind the state that enters it.
  SSMBENCH_TEAM std::uint32_t* start_phases() const { return phases_of(in(at_.turning) + plan_.angles); }

  /// α, γ, (1 − λ)·DT, and λ, 1 − λ, DT of a step.
  struct Scalars {
    float alpha, gamma, previous, open, closed, dt;
  };
  SSMBENCH_TEAM Scalars scalars(std::int64_t t) const {
    const float trap = Io::load(args_.trap, scalar_at(t));
    const float dt = args_.dt[scalar_at(t)];
    const float open = 1.0F / (1.0F + expf(-trap));
    const float closed = 1.0F / (1.0F + expf(trap));
    return {expf(args_.adt[scalar_at(t)]), dt * open, dt * closed, open, closed, dt};
  }

  /// into(row, column, Σ_{k < depth} a(row, k)·b(k, column)) for row < count, column < columns.
  template <class Into>
  SSMBENCH_TEAM void multiply(Matrix a, Matrix b, int count, int depth, int columns, const Into& into) const {
    constexpr int kTile = 4;
    const int across = (columns + kTile - 1) / kTile;
    const int down = (count + kTile - 1) / kTile;
    team_.for_all(across * down, [&](int tile) {
      const int row = tile / across * kTile;
      const int column = tile % across;  // and each `across` further: neighbours read neighbours
      float sums[kTile][kTile] = {};
      for (int k = 0; k < depth; ++k) {
        float left[kTile], right[kTile];
        for (int i = 0; i < kTile; ++i) {
          left[i] = row + i < count ? a.at(row + i, k) : 0.0F;
          right[i] = column + i * across < columns ? b.at(k, column + i * across) : 0.0F;
        }
        for (int i = 0; i < kTile; ++i)
          for (int j = 0; j < kTile; ++j) sums[i][j] += left[i] * right[j];
      }
      for (int i = 0; i < kTile && row + i < count; ++i)
        for (int j = 0; j < kTile && column + j * across < columns; ++j)
          into(row + i, column + j * across, sums[i][j]);
    });
  }

  SSMBENCH_TEAM void save(float* record) const {
    const int elements = plan_.dstate * plan_.headdim;
    team_.for_all(plan_.record, [&](int i) {
      if (i < elements)
        record[i] = in(at_.state)[i];
      else
        phases_of(record)[i] = start_phases()[i - elements];
    });
  }
  SSMBENCH_TEAM void restore(float* record) const {
    const int elements = plan_.dstate * plan_.headdim;
    team_.for_all(plan_.record, [&](int i) {
      if (i < elements)
        in(at_.state)[i] = record[i];
      else
        start_phases()[i - elements] = phases_of(record)[i];
    });
  }

  /// The input state with what the first step adds of the step before.
  SSMBENCH_TEAM void load_state() const {
    const float weight = scalars(begin_).previous;
    const int headdim = plan_.headdim;
    team_.for_all(plan_.dstate * headdim, [&](int i) {
      const int n = i / headdim;
      const int p = i % headdim;
      float value = 0;
      if (args_.input_ssm != nullptr) {
        value = args_.input_ssm[(state_at() * headdim + p) * plan_.dstate + n];
        const float v = args_.input_v[state_at() * headdim + p];
        for (int r = 0; r < plan_.rank; ++r)
          value += weight * v * factor(args_.mimo_v, r, p) * args_.input_k[k_state_at(r) + n];
      }
      in(at_.state)[i] = value;
    });
    team_.for_all(plan_.angles, [&](int i) {
      start_phases()[i] = args_.input_angle == nullptr
                              ? 0U
                              : phase_of_radians(args_.input_angle[state_at() * plan_.angles + i]);
    });
  }

  SSMBENCH_TEAM void start_back() const {
    const int headdim = plan_.headdim;
    team_.for_all(plan_.dstate * headdim, [&](int i) {
      const std::int64_t from = (state_at() * headdim + i % headdim) * plan_.dstate + i / headdim;
      in(at_.adjoint)[i] = out_.dfinal_ssm == nullptr ? 0.0F : out_.dfinal_ssm[from];
    });
    team_.for_all(plan_.angles, [&](int i) {
      in(at_.turning)[i] =
          out_.dfinal_angle == nullptr ? 0.0F : out_.dfinal_angle[state_at() * plan_.angles + i];
    });
  }

  /// Scalars, angles, V and k of the chunk's steps; the phases behind it become start_phases().
  SSMBENCH_TEAM void load_chunk(int chunk) {
    first_ = chunk * plan_.chunk;
    steps_ = plan_.chunk < length_ - first_ ? plan_.chunk : length_ - first_;
    team_.for_all(steps_, [&](int t) {
      const Scalars here = scalars(time(t));
      step_value(kAlpha, t) = here.alpha;
      step_value(kOwn, t) = here.gamma;
      step_value(kLater, t) = is_last(t) ? here.gamma : here.gamma + scalars(time(t) + 1).previous;
    });
    team_.for_all(steps_ * plan_.angles, [&](int i) {
      const std::int64_t t = time(i / plan_.angles);
      const std::int64_t at = step_at(t) * plan_.angles + i % plan_.angles;
      const float rate =
          tanhf(scan_.is_mimo ? static_cast<const float*>(args_.rates)[at] : Io::load(args_.rates, at));
      in(at_.rates)[i] = rate;
      phases_of(in(at_.phases))[i] = phase_of_turns(0.5F * args_.dt[scalar_at(t)] * rate);
    });
    team_.for_all(plan_.angles + 2, [&](int i) {
      if (i < plan_.angles) return add_up(i);
      const bool enters = i == plan_.angles;
      float product = 1;
      for (int u = 0; u < steps_; ++u) {
        const int t = enters ? u : steps_ - 1 - u;
        if (!enters) step_value(kLeave, t) = product;
        product *= step_value(kAlpha, t);
        if (enters) step_value(kEnter, t) = product;
      }
    });
    team_.for_all(steps_ * plan_.headdim, [&](int i) {
      in(at_.plain_v)[i] =
          Io::load(args_.V, step_at(time(i / plan_.headdim)) * plan_.headdim + i % plan_.headdim);
    });
    team_.for_all(rows() * plan_.headdim, [&](int i) {
      const int row = i / plan_.headdim;
      const int p = i % plan_.headdim;
      in(at_.v)[i] =
          in(at_.plain_v)[row / plan_.rank * plan_.headdim + p] * factor(args_.mimo_v, row % plan_.rank, p);
    });
    load_vectors(args_.K, args_.K_bias, in(at_.k));
  }
  /// Increments of a pair's phases to phases, and to cosines and sines.
  SSMBENCH_TEAM void add_up(int pair) const {
    std::uint32_t phase = start_phases()[pair];
    for (int t = 0; t < steps_; ++t) {
      const int i = t * plan_.angles + pair;
      phase += phases_of(in(at_.phases))[i];
      const float angle = kTurnInRadians * turns_of_phase(phase);
      in(at_.cosines)[i] = cosf(angle);
      in(at_.sines)[i] = sinf(angle);
    }
    start_phases()[pair] = phase;
  }
  /// Q or K with its bias, turned.
  SSMBENCH_TEAM void load_vectors(const void* from, const float* bias, float* to) const {
    const int pairs = plan_.dstate / 2;
    team_.for_all(rows() * pairs, [&](int i) {
      const int row = i / pairs;
      const int pair = i % pairs;
      const int r = row % plan_.rank;
      const std::int64_t at = row_at(time(row / plan_.rank), r);
      const std::int64_t of_bias = (head_ * plan_.rank + r) * plan_.dstate;
      float* const x = to + row * plan_.dstate;
      x[first_of(pair)] = Io::load(from, at + first_of(pair)) + bias[of_bias + first_of(pair)];
      x[second_of(pair)] = Io::load(from, at + second_of(pair)) + bias[of_bias + second_of(pair)];
      if (pair < plan_.angles) turn(row, pair, 1, x);
    });
  }
  SSMBENCH_TEAM void turn(int row, int pair, float sign, float* x) const {
    const int angle = row / plan_.rank * plan_.angles + pair;
    const float cosine = in(at_.cosines)[angle];
    const float sine = sign * in(at_.sines)[angle];
    const float x0 = x[first_of(pair)];
    const float x1 = x[second_of(pair)];
    x[first_of(pair)] = x0 * cosine - x1 * sine;
    x[second_of(pair)] = x0 * sine + x1 * cosine;
  }

  // Matrices, and the rows of one that are scaled by their step.
  SSMBENCH_TEAM Matrix states_of(std::int64_t array) const { return {in(array), plan_.dstate, 1}; }
  SSMBENCH_TEAM Matrix headdims_of(std::int64_t array) const { return {in(array), plan_.headdim, 1}; }
  SSMBENCH_TEAM Matrix square_of(std::int64_t array) const { return {in(array), plan_.rows, 1}; }
  SSMBENCH_TEAM static Matrix transposed(Matrix m) { return {m.data, m.column_stride, m.row_stride}; }
  /// weighted rows of v or dy, where terms of dMIMO_Z will be or have been taken from.
  SSMBENCH_TEAM void weigh(std::int64_t array, StepValue by, bool later) const {
    team_.for_all(rows() * plan_.headdim, [&](int i) {
      const int t = i / plan_.headdim / plan_.rank;
      const float weight = step_value(by, t) * (later ? step_value(kLater, t) : 1.0F);
      in(at_.gates)[i] = weight * in(array)[i];
    });
  }
  /// state or adjoint ← Π α·itself + aᵀ·weighted.
  SSMBENCH_TEAM void pass_chunk(std::int64_t a, std::int64_t array) const {
    const float all = step_value(kEnter, steps_ - 1);
    multiply(transposed(states_of(a)), headdims_of(at_.gates), plan_.dstate, rows(), plan_.headdim,
             [&](int n, int p, float sum) {
               float& value = in(array)[n * plan_.headdim + p];
               value = all * value + sum;
             });
  }

  SSMBENCH_TEAM void go_forward(int chunk) {
    load_chunk(chunk);
    weigh(at_.v, kLeave, true);
    pass_chunk(at_.k, at_.state);
  }

  /// With the state and the phases that enter it.
  SSMBENCH_TEAM void go_back(int chunk) {
    load_chunk(chunk);
    load_vectors(args_.Q, args_.Q_bias, in(at_.q));
    make_decays();
    multiply_square(states_of(at_.q), states_of(at_.k), plan_.dstate, at_.scores, at_.mixing);
    if (needs_y_) read_y();
    take_dout();
    multiply_square(headdims_of(at_.dy), headdims_of(at_.v), plan_.headdim, at_.crosses, at_.mixing_crosses);
    take_flows();
    store_sums_of(at_.gates, plan_.headdim, out_.dmimo_z != nullptr, plan_.sums.dmimo_z);
    read_states();
    read_adjoint();
    store_vectors();
    store_inputs();
    store_step_sums();
    weigh(at_.dy, kEnter, false);
    pass_chunk(at_.q, at_.adjoint);
  }

  /// decay[t][row of step u < t] = Π α of u + 1 … t.
  SSMBENCH_TEAM void make_decays() const {
    team_.for_all(rows(), [&](int row) {
      float product = 1;
      for (int t = row / plan_.rank + 1; t < steps_; ++t) {
        product *= step_value(kAlpha, t);
        in(at_.decay)[t * plan_.rows + row] = product;
      }
    });
  }

  /// a·bᵀ, and its elements of earlier columns with decay and weight, others 0.
  SSMBENCH_TEAM void multiply_square(Matrix a, Matrix b, int depth, std::int64_t to,
                                     std::int64_t mixing) const {
    multiply(a, transposed(b), rows(), depth, rows(), [&](int row, int column, float sum) {
      const int at = row * plan_.rows + column;
      const int t = row / plan_.rank;
      const int u = column / plan_.rank;
      in(to)[at] = sum;
      in(mixing)[at] = u < t ? in(at_.decay)[t * plan_.rows + column] * step_value(kLater, u) * sum : 0.0F;
    });
  }
  /// γ times an element of a square, of rows of one step.
  SSMBENCH_TEAM float own_of(std::int64_t square, int row, int other) const {
    return step_value(kOwn, row / plan_.rank) * in(square)[row * plan_.rows + other];
  }
  /// Σ weight(other)·array[other][column] over the rows of the step of `row`.
  template <class Weight>
  SSMBENCH_TEAM float sum_of_step(int row, const float* array, int stride, int column,
                                  const Weight& weight) const {
    const int first = row / plan_.rank * plan_.rank;
    float sum = 0;
    for (int other = first; other < first + plan_.rank; ++other)
      sum += weight(other) * array[other * stride + column];
    return sum;
  }

  /// y of all rows.
  SSMBENCH_TEAM void read_y() const {
    const float skip = args_.D == nullptr ? 0.0F : args_.D[head_];
    const int headdim = plan_.headdim;
    multiply(states_of(at_.q), headdims_of(at_.state), rows(), plan_.dstate, headdim,
             [&](int row, int p, float sum) {
               in(at_.y)[row * headdim + p] = step_value(kEnter, row / plan_.rank) * sum;
             });
    multiply(square_of(at_.mixing), headdims_of(at_.v), rows(), rows(), headdim,
             [&](int row, int p, float sum) {
               const auto own = [&](int other) { return own_of(at_.scores, row, other); };
               in(at_.y)[row * headdim + p] +=
                   sum + skip * in(at_.v)[row * headdim + p] + sum_of_step(row, in(at_.v), headdim, p, own);
             });
  }

  /// dy of all rows; dZ, and terms of dMIMO_Z, dMIMO_Out and of the norm's weight.
  SSMBENCH_TEAM void take_dout() const {
    const int headdim = plan_.headdim;
    if (args_.norm != nullptr) {
      team_.for_all(rows(), [&](int row) {
        float squares = 0;
        for (int p = 0; p < headdim; ++p)
          squares += in(at_.y)[row * headdim + p] * in(at_.y)[row * headdim + p];
        in(at_.inverses)[row] =
            1.0F / sqrtf(squares / static_cast<float>(headdim) + static_cast<float>(kMamba3NormEps));
      });
      team_.for_all(rows() * headdim, [&](int i) { in(at_.y)[i] *= in(at_.inverses)[i / headdim]; });
    }
    team_.for_all(steps_ * headdim, [&](int i) { take_gates(i / headdim, i % headdim); });
    store_sums_of(at_.downs, headdim, out_.dmimo_out != nullptr, plan_.sums.dmimo_out);
    if (args_.norm != nullptr) take_norm();
  }
  /// The same of a head dim of step t, y there with the norm but without its weight.
  SSMBENCH_TEAM void take_gates(int t, int p) const {
    const std::int64_t from = step_at(time(t)) * plan_.headdim + p;
    const float Z = args_.Z == nullptr ? 0.0F : Io::load(args_.Z, from);
    float dZ = 0;
    for (int r = 0; r < plan_.rank; ++r) {
      const int at = (t * plan_.rank + r) * plan_.headdim + p;
      const float dout = Io::load(out_.dout, out_at(time(t), r) + p);
      const float weight = args_.norm == nullptr ? 1.0F : args_.norm[head_ * plan_.headdim + p];
      const float gated = needs_y_ ? in(at_.y)[at] * weight : 0.0F;
      float dy = dout * factor(args_.mimo_out, r, p);
      float open = 1;
      in(at_.gates)[at] = 0;
      if (args_.Z != nullptr) {
        const float z = Z * factor(args_.mimo_z, r, p);
        const float sigma = 1.0F / (1.0F + expf(-z));
        const float dz = dy * gated * sigma * (1.0F + z / (1.0F + expf(z)));
        open = silu(z);
        in(at_.gates)[at] = dz * Z;
        dZ += dz * factor(args_.mimo_z, r, p);
      }
      in(at_.downs)[at] = dout * gated * open;
      in(at_.dy)[at] = dy * open;
    }
    if (args_.Z != nullptr) Io::store(out_.dZ, from, dZ);
  }
  /// Through the norm: dy ← inverse·(dn − n·mean(dn·n)), dn = dy·weight, n the normalized y.
  SSMBENCH_TEAM void take_norm() const {
    const int headdim = plan_.headdim;
    const float* const weights = args_.norm + head_ * headdim;
    team_.for_all(rows() * headdim, [&](int i) { in(at_.norms)[i] = in(at_.dy)[i] * in(at_.y)[i]; });
    team_.for_all(rows(), [&](int row) {
      float sum = 0;
      for (int p = 0; p < headdim; ++p) sum += in(at_.norms)[row * headdim + p] * weights[p];
      in(at_.means)[row] = sum / static_cast<float>(headdim);
    });
    team_.for_all(rows() * headdim, [&](int i) {
      const int row = i / headdim;
      in(at_.dy)[i] =
          in(at_.inverses)[row] * (in(at_.dy)[i] * weights[i % headdim] - in(at_.y)[i] * in(at_.means)[row]);
    });
    store_sums_of(at_.norms, headdim, true, plan_.sums.dnorm);
  }

  /// What flows from rows to those of later steps, and past the steps.
  SSMBENCH_TEAM void take_flows() const {
    team_.for_all(rows(), [&](int column) {
      const int u = column / plan_.rank;
      float sum = 0;
      for (int row = (u + 1) * plan_.rank; row < rows(); ++row) {
        const int at = row * plan_.rows + column;
        sum +=
            in(at_.scores)[at] * in(at_.crosses)[at] * in(at_.decay)[row / plan_.rank * plan_.rows + column];
      }
      in(at_.flows)[column] = sum;
    });
    team_.for_all(steps_, [&](int t) {  // over pairs of earlier columns and rows from step t on
      float sum = 0;
      for (int row = t * plan_.rank; row < rows(); ++row)
        for (int column = 0; column < t * plan_.rank; ++column) {
          const int at = row * plan_.rows + column;
          sum += in(at_.mixing)[at] * in(at_.crosses)[at];
        }
      step_value(kWithin, t) = sum;
    });
  }

  /// dq of the state that enters and of earlier steps, and what flows from the former.
  SSMBENCH_TEAM void read_states() const {
    const int dstate = plan_.dstate;
    multiply(headdims_of(at_.dy), transposed(headdims_of(at_.state)), rows(), plan_.headdim, dstate,
             [&](int row, int n, float sum) {
               in(at_.dq)[row * dstate + n] = step_value(kEnter, row / plan_.rank) * sum;
             });
    team_.for_all(steps_, [&](int t) {
      float sum = 0;
      for (int i = t * plan_.rank * dstate; i < (t + 1) * plan_.rank * dstate; ++i)
        sum += in(at_.dq)[i] * in(at_.q)[i];
      step_value(kEntered, t) = sum;
    });
    multiply(square_of(at_.mixing_crosses), states_of(at_.k), rows(), rows(), dstate,
             [&](int row, int n, float sum) { in(at_.dq)[row * dstate + n] += sum; });
  }

  /// dk and dV of the adjoint that leaves and of later steps, and what flows to the former.
  SSMBENCH_TEAM void read_adjoint() const {
    const int dstate = plan_.dstate;
    const int headdim = plan_.headdim;
    multiply(headdims_of(at_.v), transposed(headdims_of(at_.adjoint)), rows(), headdim, dstate,
             [&](int row, int n, float sum) {
               in(at_.dk)[row * dstate + n] = step_value(kLeave, row / plan_.rank) * sum;
             });
    team_.for_all(steps_, [&](int t) {
      float sum = 0;
      for (int i = t * plan_.rank * dstate; i < (t + 1) * plan_.rank * dstate; ++i)
        sum += in(at_.dk)[i] * in(at_.k)[i];
      step_value(kInputs, t) = sum;
    });
    multiply(transposed(square_of(at_.mixing_crosses)), states_of(at_.q), rows(), rows(), dstate,
             [&](int row, int n, float sum) {
               float& dk = in(at_.dk)[row * dstate + n];
               dk = step_value(kLater, row / plan_.rank) * dk + sum;
             });
    multiply(states_of(at_.k), headdims_of(at_.adjoint), rows(), dstate, headdim,
             [&](int row, int p, float sum) {
               const int t = row / plan_.rank;
               in(at_.dv)[row * headdim + p] = step_value(kLater, t) * step_value(kLeave, t) * sum;
             });
    multiply(transposed(square_of(at_.mixing)), headdims_of(at_.dy), rows(), rows(), headdim,
             [&](int row, int p, float sum) {
               const auto own = [&](int other) { return own_of(at_.scores, other, row); };
               in(at_.dv)[row * headdim + p] += sum + sum_of_step(row, in(at_.dy), headdim, p, own);
             });
  }

  // What is made of them: store_gradients.h.

  /// dθ and dAngles, then dQ and dK of the head: those of the step itself are added where the angles have
  /// theirs, since they cancel there.
  SSMBENCH_TEAM void store_vectors() const;
  /// Θ of the chunk's steps, in place of sines' phases.
  SSMBENCH_TEAM void sum_turns(int pair) const;
  SSMBENCH_TEAM float turn_of(const float* x, const float* dx, int row, int pair) const;
  SSMBENCH_TEAM void store_rates() const;
  /// dV; dv becomes the terms of dMIMO_V, y those of dD.
  SSMBENCH_TEAM void store_inputs() const;
  /// Adds the sum over steps of an array of rows.
  SSMBENCH_TEAM void store_sums_of(std::int64_t array, int width, bool wanted, int to) const;
  /// ⟨W, V ⊗ k⟩ of each step, what it gives and gets of its own, and dADT: what flows past it.
  SSMBENCH_TEAM void store_step_sums() const;
  /// The gradients of the input states; the adjoint is that of the one before the first step.
  SSMBENCH_TEAM void store_start() const;
  SSMBENCH_TEAM void store_scalars() const;
  /// A sequence without steps passes its states through.
  SSMBENCH_TEAM void pass_cotangents() const;

  const Mamba3BwdArgs& out_;
  const Mamba3Args& args_;
  const Mamba3& scan_;
  const GradientPlan& plan_;
  const GradientMemory& at_;
  const Team& team_;
  float *workspace_, *memory_;
  bool needs_y_;
  float* sums_ = nullptr;
  std::int64_t index_ = 0, batch_ = 0, head_ = 0, begin_ = 0;
  int length_ = 0, first_ = 0, steps_ = 0;  ///< of the sequence; the chunk's first step in it, and its steps
};

}  // namespace ssmbench::mamba3

#include "kernels/mamba3/chunked_bwd/store_gradients.h"
