#pragma once

// The warpgroups of MIMO's gradient kernel that compute. Two of queries have what belongs to a chunk's rows t, the steps
// that read the state; two of keys what belongs to its columns s, the steps that write it. Warp w has rows
// 16w … 16w + 15 of every product:
//
//   all       M = (q·kᵀ) ∘ L ∘ w    X = (dy·Vᵀ) ∘ L ∘ w    16 columns each
//   queries   y = M·V + enter ∘ (q·Sᵀ)                     the second one
//             dq = X·k + enter ∘ (dy·S), turned back: dQ   64 states each
//   keys      dV = Mᵀ·dy + s∘leave ∘ (k·S'ᵀ)                   the second one
//             dk = Xᵀ·q + s∘leave ∘ (V·S'), turned back: dK    64 states each
//             dθ of q and k                                    of these states
//
// What both do is one code: that of all roles has to fit in the instruction cache.

#include "kernels/mamba3/hopper_bwd/narrow_wgmma.cuh"
#include "kernels/mamba3/hopper_bwd/rank_epilogue.cuh"

namespace ssmbench::mamba3_bwd {

template <class T>
class RankWarpgroup {
  using Io = typename T::Io;
  using Shared = RankShared<T>;
  using Inputs = typename Shared::Inputs::Position;
  using Steps = float[kStepFloats][kSteps];
  static constexpr int kHalves = Shared::Layout::kHalves;
  static constexpr auto kAlong = hopper::Major::k;
  static constexpr auto kAcross = hopper::Major::rows;
  static constexpr int kOfStep = T::kRanks == 1 ? 1 : 2;  ///< of a thread's two columns, those of a step

 public:
  __device__ RankWarpgroup(const HopperArgs& args, const Shared& shared, bool is_query, int part)
      : args_(args),
        shared_(shared),
        is_query_(is_query),
        part_(part),
        thread_(threadIdx.x % ssd::kGroupThreads),
        fragment_(hopper::fragment_offset(warp(), lane())) {}

  __device__ void run() {
    float sums[32];
#pragma unroll
    for (float& value : sums) value = 0.0F;
    const int heads = ssd::BlockPlace(args_).heads;
#pragma unroll 1
    for (int head = 0; head < heads; ++head) one_head(sums, head, heads);
    if (part_ >= kHalves) return;
    // Where the head behind the last one would be loaded, once nobody needs what is there.
    const auto free = Shared::pair_at(heads);
    shared_.inputs().wait_empty(free);
    shared_.operands().wait_empty(free);
    write_states<T>(args_, is_query_ ? ssd::Projection::C : ssd::Projection::B, part_, sums, patch(),
                    shared_.stage(free, ((is_query_ ? 0 : kHalves) + part_) * kWarpsOfGroup + warp()));
  }

 private:
  __device__ int warp() const {
    return static_cast<int>(thread_ / 32);
  }
  __device__ int lane() const {
    return static_cast<int>(thread_ % 32);
  }
  /// Of all warpgroups that compute.
  __device__ int group() const {
    return (is_query_ ? 0 : kRankParts) + part_;
  }
  /// Of M and X: the fewer squares, the more else there is to do.
  __device__ int square_part() const {
    return kRankGroups - 1 - group();
  }
  __device__ Patch patch() const {
    return {16 * warp(), 0, lane()};
  }

  // Tiles of rows: those that are weighed and their states, those that are multiplied by these states, and those that
  // M and X multiply.
  __device__ std::uint32_t rows_tile(Inputs at) const {
    return is_query_ ? shared_.dy_tile(at) : shared_.x_tile(at);
  }
  __device__ std::uint32_t other_rows_tile(Inputs at) const {
    return is_query_ ? shared_.x_tile(at) : shared_.dy_tile(at);
  }
  __device__ std::uint32_t states_tile(Inputs at) const {
    return is_query_ ? shared_.state_tile(at) : shared_.dstate_tile(at);
  }
  __device__ std::uint32_t vectors_tile(Inputs at) const {
    return is_query_ ? shared_.q_tile(at) : shared_.k_tile(at);
  }
  __device__ std::uint32_t other_vectors_tile(Inputs at) const {
    return is_query_ ? shared_.k_tile(at) : shared_.q_tile(at);
  }

  /// Of a row: what lies between it and the state, and what its products with the state are weighed by.
  __device__ __forceinline__ float decay_of(const Steps& steps, int row) const {
    return steps[is_query_ ? kStepEnter : kStepLeave][row];
  }
  __device__ __forceinline__ float weight_of(const Steps& steps, int row) const {
    const float decay = decay_of(steps, row);
    return is_query_ ? decay : steps[kStepDelta][row] * decay;
  }

  __device__ __forceinline__ void one_head(float (&sums)[32], int head, int heads) const {
    const auto input_at = Shared::pair_at(head);
    const auto flow_at = Shared::flows_at(head);
    auto& flows = shared_.flows_of(flow_at);
    // A head ahead where there is room for its phases.
    const bool is_ahead = args_.angle_tiles == 1;
    if (!is_ahead || head == 0) make_vectors(head);
    shared_.operands().wait_full(input_at);
    shared_.vectors().wait_full(input_at);
    float flow[2] = {0.0F, 0.0F};
    if (part_ == 1) {
      make_output(flows, head, flow);
    } else {
      Squares squares;
      start_squares(squares, head);
      hopper::wgmma_wait<0>();
      make_squares(squares, flows, head, flow);
    }
    store_flow(flows.out[group()], flow);
    if (is_ahead && head + 1 < heads) make_vectors(head + 1);
    if (part_ < kHalves)
      add_states(sums, flows, head);
    else
      release_operands(head);
    hopper::barrier_arrive(shared_.flows().full(flow_at));
    ssd::warp_arrive(shared_.inputs().empty(input_at), lane());
    ssd::warp_arrive(shared_.phases().empty(Shared::phases_at(head, args_.angle_tiles)), lane());
  }

  /// A warp's sums of its rows, of which a thread has a share.
  __device__ __forceinline__ void store_flow(float* to, float (&flow)[2]) const {
#pragma unroll
    for (float& sum : flow) sum = sum_lanes<1, 2>(sum);
    if (lane() % 4 != 0) return;
    to[patch().row_of(0)] = flow[0];
    to[patch().row_of(2)] = flow[1];
  }

  /// q and k of Q and K in place: biases, turned, rounded. A warp has 16 rows, and of each 64 states 16: those of its
  /// warpgroup.
  __device__ __forceinline__ void make_vectors(int head) const {
    const auto at = Shared::pair_at(head);
    const auto phases_at = Shared::phases_at(head, args_.angle_tiles);
    const int columns = group();
    const auto* const biases = reinterpret_cast<const float4*>(args_.work.biases) +
                               (shared_.place().head + head) * (2 * T::kRanks * T::kStates / 4) +
                               (columns * T::kRanks + lane() / 4 % T::kRanks) * 4 + lane() % 4;
    float4 bias[2][kHalves];
#pragma unroll
    for (int i = 0; i < 2 * kHalves; ++i) bias[i / kHalves][i % kHalves] = __ldg(biases + i * T::kRanks * 16);
    shared_.inputs().wait_full(at);
    shared_.phases().wait_full(phases_at);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const std::uint32_t tile = half * kTile + (fragment_ ^ columns * 32);
      if (half < args_.angle_tiles) {
        const uint4 phases = shared_.phases_of(
            phases_at,
            half)[own_vector<T::kRanks>(static_cast<int>(thread_)) + columns * kVectorsApart<T::kRanks>];
        const Turn turns[4] = {turn_of(phases.x), turn_of(phases.y), turn_of(phases.z), turn_of(phases.w)};
        make_fragment<true>(shared_.q_tile(at) + tile, bias[0][half], turns);
        make_fragment<true>(shared_.k_tile(at) + tile, bias[1][half], turns);
      } else {
        const Turn turns[4] = {};
        make_fragment<false>(shared_.q_tile(at) + tile, bias[0][half], turns);
        make_fragment<false>(shared_.k_tile(at) + tile, bias[1][half], turns);
      }
    }
    hopper::fence_async_proxy();
    ssd::warp_arrive(shared_.vectors().full(at), lane());
  }
  template <bool kTurns>
  __device__ __forceinline__ static void make_fragment(std::uint32_t tile, const float4& bias,
                                                       const Turn (&turns)[4]) {
    std::uint32_t x[4];
    load_matrices(x, tile);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float2 pair = plus(x[i], bias, i);
      if constexpr (kTurns) pair = turn_pair(pair, turns[i]);
      x[i] = pack_pair<Io>(pair.x, pair.y);
    }
    hopper::store_matrices(tile, x[0], x[1], x[2], x[3]);
  }

  /// Once the products of a head are there.
  __device__ __forceinline__ void release_operands(int head) const {
    ssd::warp_arrive(shared_.squares().empty(Shared::one_at(head)), lane());
    ssd::warp_arrive(shared_.operands().empty(Shared::pair_at(head)), lane());
  }

  struct Squares {
    float scores[8], crosses[8];
  };
  /// Starts q·kᵀ and dy·Vᵀ.
  __device__ __forceinline__ void start_squares(Squares& to, int head) const {
    const auto at = Shared::pair_at(head);
    const std::uint32_t columns = square_part() * kPartColumns * 128;  // rows of 128 bytes
    hopper::wgmma_fence();
    start_narrow_product<T::kStates>(to.scores, shared_.q_tile(at), shared_.k_tile(at) + columns);
    start_narrow_product<kSteps>(to.crosses, shared_.dy_tile(at), shared_.x_tile(at) + columns);
    hopper::wgmma_commit();
    shared_.squares().wait_empty(Shared::one_at(head));
    shared_.flows().wait_empty(Shared::flows_at(head));
  }
  /// M and X.
  __device__ __forceinline__ void make_squares(Squares& of, RankFlows<T::kRanks>& flows, int head,
                                               float (&flow)[2]) const {
    const auto at = Shared::pair_at(head);
    hopper::pin_registers(of.scores);
    hopper::pin_registers(of.crosses);
    store_squares(of.scores, of.crosses, shared_.steps(at), shared_.owns(at), flows, flow);
    hopper::fence_async_proxy();
    ssd::warp_arrive(shared_.squares().full(Shared::one_at(head)), lane());
  }

  /// M and X, and y or dV, whose product with the states is under way meanwhile.
  __device__ __forceinline__ void make_output(RankFlows<T::kRanks>& flows, int head, float (&flow)[2]) const {
    const auto input_at = Shared::pair_at(head);
    const Steps& steps = shared_.steps(input_at);
    // Meanwhile, but where there are no registers for both.
    constexpr bool kOverlaps = T::kRanks > 1;
    float output[32];
    const auto start_output = [&] {
      ssd::start_tile_product<Io, kAlong, kAlong, T::kStates>(
          output, ssd::tile_operand(vectors_tile(input_at)), ssd::tile_operand(states_tile(input_at)));
    };
    Squares squares;
    start_squares(squares, head);
    if constexpr (kOverlaps) start_output();
    hopper::wgmma_wait<kOverlaps ? 1 : 0>();
    make_squares(squares, flows, head, flow);
    if constexpr (!kOverlaps) start_output();
    hopper::wgmma_wait<0>();
    hopper::pin_registers(output);
    const float weights[2] = {weight_of(steps, patch().row_of(0)), weight_of(steps, patch().row_of(2))};
    float products[2] = {0.0F, 0.0F};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      std::uint32_t rows[4];
      load_matrices(rows, (rows_tile(input_at) + fragment_) ^ j * 32);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 pair = unpack_pair<Io>(rows[i]);
        float* const of = output + 8 * j + 2 * i;
        products[i % 2] += pair.x * of[0] + pair.y * of[1];
        of[0] *= weights[i % 2];
        of[1] *= weights[i % 2];
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) products[j] *= decay_of(steps, patch().row_of(2 * j));
    if (is_query_) {
      flow[0] += products[0];
      flow[1] += products[1];
    } else {
      store_flow(flows.into, products);
    }
    shared_.squares().wait_full(Shared::one_at(head));
    hopper::pin_registers(output);
    if (is_query_)
      start_of_steps<kAlong>(output, shared_.mixing_tile(), other_rows_tile(input_at));
    else
      start_of_steps<kAcross>(output, shared_.mixing_tile(), other_rows_tile(input_at));
    hopper::wgmma_wait<0>();
    hopper::pin_registers(output);
    write_output<T>(args_, is_query_ ? args_.work.y : args_.work.dv, shared_.place().row + head, output,
                    patch(), flows.biases[is_query_ ? 0 : 1][1][warp()]);
  }

  /// dq or dk, 64 states of it, turned back.
  __device__ __forceinline__ void add_states(float (&sums)[32], RankFlows<T::kRanks>& flows, int head) const {
    const auto input_at = Shared::pair_at(head);
    const auto one_at = Shared::one_at(head);
    const int half = part_ * kTile;
    float gradient[32];
    {
      const Steps& steps = shared_.steps(input_at);
      const float weights[2] = {weight_of(steps, patch().row_of(0)), weight_of(steps, patch().row_of(2))};
      std::uint32_t weighed[16];
      weigh_tile(weighed, rows_tile(input_at) + fragment_, RowWeights(weights));
      start_of_states(gradient, weighed, states_tile(input_at) + half);
    }
    shared_.squares().wait_full(one_at);
    if (is_query_) {
      start_of_steps<kAlong>(gradient, shared_.crosses_tile(), other_vectors_tile(input_at) + half);
      hopper::wgmma_wait<0>();
      hopper::pin_registers(gradient);
    } else {
      start_of_steps<kAcross>(gradient, shared_.crosses_tile(), other_vectors_tile(input_at) + half);
      hopper::wgmma_wait<0>();
      hopper::pin_registers(gradient);
    }
    release_operands(head);
    if (!is_query_ && args_.final_k != nullptr) add_final_k(gradient, head);
    float* const biases = flows.biases[is_query_ ? 0 : 1][part_][warp()];
    float turned[kOwnPairs];
    if (part_ < args_.angle_tiles) {
      add_gradient<T::kRanks, true>(sums, gradient, turned, vectors_tile(input_at) + half + fragment_,
                                    shared_.phases_of(Shared::phases_at(head, args_.angle_tiles), part_) +
                                        own_vector<T::kRanks>(static_cast<int>(thread_)),
                                    biases, lane());
      share_steps<T::kRanks>(turned, lane());
      if (is_query_)
        hand_turned(turned, one_at);
      else
        store_turned(turned, shared_.place().row + head, one_at, flows.turns[part_][warp()]);
    } else {
      add_gradient<T::kRanks, false>(sums, gradient, turned, 0, nullptr, biases, lane());
    }
    hopper::pin_registers(gradient);
  }

  /// The thread's share of dθ to the key warpgroup.
  __device__ __forceinline__ void hand_turned(const float (&turned)[kOwnPairs],
                                              hopper::RingPosition<1> one_at) const {
    shared_.turned(part_).wait_empty(one_at);
    float* const to = shared_.turned_of_q(part_) + thread_;
#pragma unroll
    for (int i = 0; i < kOwnShare<T::kRanks>; ++i) to[i * ssd::kGroupThreads] = turned[i];
    hopper::barrier_arrive(shared_.turned(part_).full(one_at));
  }

  /// From q·kᵀ and dy·Vᵀ: M and X, rounded, to their tiles, and the sums of M ∘ X.
  __device__ __forceinline__ void store_squares(const float (&scores)[8], const float (&crosses)[8],
                                                const Steps& steps, const float* of_owns,
                                                RankFlows<T::kRanks>& flows, float (&flow_out)[2]) const {
    const int part = square_part();
    const Patch at{16 * warp(), kPartColumns * part, lane()};
    // The step of row_of(0) less that of column_of(0, 0).
    const int ahead = at.row_of(0) / T::kRanks - at.column_of(0, 0) / T::kRanks;
    const float rows[2] = {kLog2E * steps[kStepDecay][at.row_of(0)],
                           kLog2E * steps[kStepDecay][at.row_of(2)]};
    const float owns[2] = {of_owns[at.row_of(0)], of_owns[at.row_of(2)]};
    const std::uint32_t tile = shared_.mixing_tile() + (fragment_ ^ part * 32);
    float columns[16];                 // 4 / kOfStep of them
    float diagonal[2] = {0.0F, 0.0F};  // with one rank in the lanes that have it
    std::uint32_t m[4] = {0, 0, 0, 0};
    std::uint32_t x[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 4 / kOfStep; ++i) columns[i] = 0.0F;
    if (part <= warp()) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int s = at.column_of(e, 0);
        const float2 decay = *reinterpret_cast<const float2*>(steps[kStepDecay] + s);
        const float2 delta = *reinterpret_cast<const float2*>(steps[kStepDelta] + s);
        float of_m[4];
        float of_x[4];
#pragma unroll
        for (int i = 0; i < 4; i += kOfStep) {
          // The column's step less the row's, but for ahead.
          const int behind = (8 * e - i / 2 * 8) / T::kRanks + (T::kRanks == 1 ? i % 2 : 0);
          const float between = exp2_approximate(-kLog2E * (i % 2 == 0 ? decay.x : decay.y) + rows[i / 2]);
          const float reached = behind <= ahead ? between : 0.0F;
          const float weight = behind == ahead ? owns[i / 2] : (i % 2 == 0 ? delta.x : delta.y);
          const float weighed = reached * weight;
          float product = 0.0F;
#pragma unroll
          for (int k = i; k < i + kOfStep; ++k) {
            const float score = scores[4 * e + k];
            const float cross = crosses[4 * e + k];
            of_m[k] = score * weighed;
            of_x[k] = cross * weighed;
            product += score * cross;
          }
          product *= reached;
          if (behind < ahead) {
            // Not the diagonal too: beside it, what strong decays leave is lost.
            columns[(2 * e + i % 2) / kOfStep] += product;
            flow_out[i / 2] += product * weight;
          }
          if (behind == ahead) diagonal[i / 2] += product;
        }
        m[2 * e] = pack_pair<Io>(of_m[0], of_m[1]);
        m[2 * e + 1] = pack_pair<Io>(of_m[2], of_m[3]);
        x[2 * e] = pack_pair<Io>(of_x[0], of_x[1]);
        x[2 * e + 1] = pack_pair<Io>(of_x[2], of_x[3]);
      }
    }
    hopper::store_matrices(tile, m[0], m[1], m[2], m[3]);
    hopper::store_matrices(tile + kTile, x[0], x[1], x[2], x[3]);
    if constexpr (T::kRanks > 1) {
      for (float& sum : diagonal) sum = sum_lanes<1, 2>(sum);
    }
    // The blocks on the diagonal are of one part.
    if (warp() == part && (T::kRanks > 1 ? lane() % 4 == 0 : lane() / 8 == lane() % 4)) {
      flows.diagonal[at.row_of(0)] = diagonal[0];
      flows.diagonal[at.row_of(2)] = diagonal[1];
    }
    sum_columns<2 / kOfStep>(columns, lane(), [&](int column) {
      // Those of a step are added later.
      *reinterpret_cast<float2*>(flows.column[warp()] + kPartColumns * part + column) =
          make_float2(columns[0], kOfStep == 1 ? columns[1] : 0.0F);
    });
  }

  /// The cotangent of the last k.
  __device__ __forceinline__ void add_final_k(float (&dk)[32], int head) const {
    const SsdInputs& in = args_.bwd.in;
    const RankedSequencePlace<T::kRanks> place(args_);
    if (place.last >= kSteps) return;
    const auto dstate = static_cast<int>(in.dstate);
    // Where the second state of a pair lies, and where the first one of the next pair.
    const int second = args_.halves ? dstate / 2 : 1;
    const int next = args_.halves ? 1 : 2;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int rank = patch().row_of(2 * row) - (place.last + 1 - T::kRanks);
      if (rank < 0 || rank >= T::kRanks) continue;
      const float* const from =
          args_.final_k +
          ((place.sequence * T::kRanks + rank) * in.nheads + place.first_head + head) * dstate +
          (32 * part_ + patch().lane % 4) * next;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (64 * part_ + 8 * e >= dstate) break;
        dk[4 * e + 2 * row] += from[4 * e * next];
        dk[4 * e + 2 * row + 1] += from[4 * e * next + second];
      }
    }
  }

  /// dθ, with the query warpgroup's part, and its sums. `turned`: the thread's share.
  __device__ __forceinline__ void store_turned(float (&turned)[kOwnPairs], std::int64_t row,
                                               hopper::RingPosition<1> one_at, float* sums) const {
    constexpr int kApart = kVectorsApart<T::kRanks>;
    const int thread = static_cast<int>(thread_);
    const float* const of_q = shared_.turned_of_q(part_) + thread;
    auto* const to = reinterpret_cast<float4*>(args_.work.dtheta +
                                               (row * args_.angle_tiles + part_) * (kAngleTile / T::kRanks)) +
                     own_vector<T::kRanks>(thread);
    const auto ring = shared_.turned(part_);
    ring.wait_full(one_at);
#pragma unroll
    for (int i = 0; i < kOwnShare<T::kRanks>; ++i) turned[i] += of_q[i * ssd::kGroupThreads];
    const int rank = thread / 4 % T::kRanks;
    if constexpr (T::kRanks == 8) {
      reinterpret_cast<float2*>(to + rank / 2 * kApart)[rank % 2] = make_float2(turned[0], turned[1]);
    } else {
      constexpr int kShare = kOwnVectors / T::kRanks;
#pragma unroll
      for (int i = 0; i < kShare; ++i)
        to[(rank * kShare + i) * kApart] =
            make_float4(turned[4 * i], turned[4 * i + 1], turned[4 * i + 2], turned[4 * i + 3]);
    }
    hopper::barrier_arrive(ring.empty(one_at));  // behind the use, as in write_rank_flows()
    store_turns<T::kRanks>(turned, sums, patch().lane);
  }

  const HopperArgs& args_;
  Shared shared_;
  bool is_query_;
  int part_;
  unsigned thread_;  ///< of the warpgroup
  std::uint32_t fragment_;
};

}  // namespace ssmbench::mamba3_bwd
