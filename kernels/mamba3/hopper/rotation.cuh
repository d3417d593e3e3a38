#pragma once

// The rotating warpgroup of cuda-hopper: it makes q and k of a head of those of its group, in place,
//
//   θ_t = θ_{t-1} + DT_t·π·tanh(rate_t)        q_t = Rot(θ_t)(Q_t + bias),  k_t = Rot(θ_t)(K_t + bias)
//
// Warp w has the chunk's steps 16w … 16w + 15. Lane 8g + v has four of them, 16w + 4g on, and of each of their
// rows in a tile the 16-byte vector v: pairs 4v … 4v + 3 of the first 64 states, which may turn, and states
// 8v … 8v + 7 of the others, which do not.
//
// Time of a chunk:
//
//   increments of the lane's steps and pairs, added up over its steps and over the warp's lanes (shuffles)
//   q and k, once the sums of the warps before are there: biases added, turned
//
// Angles are 32-bit integers (phase.h). That before a chunk stays in a register, of pair 4v + g in lane 8g + v,
// and goes to the next block where an item is cut.

#include "kernels/mamba3/hopper/increments.h"
#include "kernels/mamba3/hopper/quads.cuh"
#include "kernels/mamba3/phase.h"
#include "kernels/ssd_chunk_scan/hopper/block.cuh"

namespace ssmbench::mamba3_hopper {

using ssd_hopper::HopperArgs;
using ssd_hopper::Item;
using ssd_hopper::kRotatedPairs;
using ssd_hopper::kRotatingWarps;
using ssd_hopper::kTile;
using ssd_hopper::Plan;
using ssd_hopper::Segment;
using ssd_hopper::SharedMemory;

template <class T>
class RotatingWarpgroup {
  using Io = typename T::Io;
  using Shared = SharedMemory<T>;
  using Vector = Quad<true>;
  using Values = QuadValues<true>;
  static constexpr int kHalves = T::Layout::kHalves;
  static constexpr int kWarpSteps = ssd_hopper::kSteps / kRotatingWarps;
  static constexpr int kLaneSteps = 4;
  static constexpr int kPairs = 4;       ///< of a vector
  static constexpr int kRowVectors = 8;  ///< of a row of a tile
  static constexpr unsigned kLanes = 0xFFFFFFFFU;

 public:
  __device__ RotatingWarpgroup(const HopperArgs& args, const Shared& shared)
      : args_(args), plan_(args.plan), shared_(shared) {}

  __device__ void run() {
    for (int i = 0; i < plan_.segments(blockIdx.x); ++i) {
      const Segment segment = plan_.segment(blockIdx.x, i);
      const Item item = plan_.item(segment.item);
      enter(segment, item);
      for (int chunk = segment.first; chunk < segment.end; ++chunk) rotate(chunk, chunk + 1 < segment.end);
      leave(segment, plan_.item(segment.item));
    }
  }

 private:
  /// Asked for anew in each phase: no register is left to keep it, and what follows from it, in.
  struct Lane {
    int thread = ssd_hopper::group_thread();

    __device__ int warp() const { return thread / 32; }
    __device__ int lane() const { return thread % 32; }
    /// The first of its steps of a chunk.
    __device__ int row() const { return thread / kRowVectors * kLaneSteps; }
    /// Of its vector.
    __device__ int first_pair() const { return thread % kRowVectors * kPairs; }
    /// Whose angle it keeps.
    __device__ int pair() const { return first_pair() + lane() / kRowVectors; }
  };
  using Angles = std::uint32_t[kPairs];  ///< of the lane's pairs

  /// Sines and cosines are the hardware's, 2^-21 off on [−π, π].
  __device__ __forceinline__ static void sine_cosine(std::uint32_t angle, float& sine, float& cosine) {
    const float radians = static_cast<float>(static_cast<std::int32_t>(angle)) * (kTurnInRadians * 0x1p-32F);
    sine = __sinf(radians);
    cosine = __cosf(radians);
  }

  __device__ void enter(const Segment& segment, const Item& item) {
    head_ = static_cast<int>(item.b * args_.ssd.in.nheads) + item.group;
    dt_ = load_dt(segment.first);
    stage_biases(item.group);
    angle_ = 0;
    const int pair = Lane().pair();
    if (segment.first > 0) {
      take(pair);
    } else if (pair < args_.rotation.angles && args_.rotation.input_angle != nullptr) {
      angle_ = phase_of_radians(args_.rotation.input_angle[state_of_angle(pair)]);
    }
  }
  /// Where the angle of a pair lies in a (B, H, S) tensor.
  __device__ std::int64_t state_of_angle(int pair) const {
    return std::int64_t{head_} * args_.rotation.angles + pair;
  }

  /// Biases of k and q to shared memory, zeros behind dstate.
  __device__ void stage_biases(int head) const {
    group_barrier();  // the segment before is done
    const int n = Lane().thread;
    const std::int64_t dstate = args_.ssd.in.dstate;
    if (n < T::kStates) {
      float* const to = shared_.template at_address<float>(shared_.base + T::Layout::kBiases) + n;
      to[0] = n < dstate ? args_.rotation.B_bias[head * dstate + n] : 0.0F;
      to[T::kStates] = n < dstate ? args_.rotation.C_bias[head * dstate + n] : 0.0F;
    }
    group_barrier();
  }
  __device__ static void group_barrier() { asm volatile("bar.sync 4, 128;\n" ::: "memory"); }

  /// DT of the warp's step `lane` of a chunk; 0 past the end.
  __device__ float load_dt(int chunk) const {
    const Lane at;
    const int t = chunk * ssd_hopper::kSteps + kWarpSteps * at.warp() + at.lane();
    const std::int64_t seqlen = args_.ssd.in.seqlen;
    return at.lane() < kWarpSteps && t < seqlen ? args_.rotation.dt[head_ * seqlen + t] : 0.0F;
  }

  __device__ __forceinline__ void rotate(int chunk, bool has_next) {
    shared_.projections().wait_full(at_);
    Angles sums;
    add_up(sums);
    if (has_next) dt_ = load_dt(chunk + 1);
    publish_sums(sums);
    rotate_rows(sums);
    hopper::fence_async_proxy();
    ssd_hopper::warp_arrive(shared_.projections().done(at_), Lane().lane());
    at_.advance();
  }

  /// Angles of the lane's pairs at its step i, [step][pair], without what comes before its first step.
  __device__ uint4* angles_of(const Lane& at, int i) const {
    return shared_.template at_address<uint4>(shared_.base + T::Layout::kAngles +
                                              ((at.row() + i) * kRotatedPairs + at.first_pair()) * 4);
  }

  /// Sums of the increments of the lane's pairs, from its first step to each, to shared memory. `sums`: of all
  /// of its steps. Rates are 0 past the end, and of pairs that there are not.
  __device__ __forceinline__ void add_up(Angles& sums) const {
    const Lane at;
    const Io* const from =
        shared_.template at_address<Io>(shared_.rates(at_)) + at.row() * kRotatedPairs + at.first_pair();
    // More than half a turn a step.
    const bool wide = __any_sync(kLanes, !(dt_ <= 1.0F));
    const int first = at.lane() / kRowVectors * kLaneSteps;
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) sums[pair] = 0;
    uint2 rates = *reinterpret_cast<const uint2*>(from);
#pragma unroll 1
    for (int i = 0; i < kLaneSteps; ++i) {
      const float2 two = unpack_pair<Io>(rates.x);
      const float2 others = unpack_pair<Io>(rates.y);
      float turns[kPairs]{two.x, two.y, others.x, others.y};  // 2^-32 of them
      rates = *reinterpret_cast<const uint2*>(from + min(i + 1, kLaneSteps - 1) * kRotatedPairs);
      const float scale = 0x1p31F * __shfl_sync(kLanes, dt_, first + i);
#pragma unroll
      for (float& turn : turns) turn = scale * fast_tanh(turn);
      if (wide)
#pragma unroll
        for (float& turn : turns) turn -= 0x1p32F * rintf(0x1p-32F * turn);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair)
        sums[pair] += static_cast<std::uint32_t>(__float2int_rn(turns[pair]));
      *angles_of(at, i) = make_uint4(sums[0], sums[1], sums[2], sums[3]);
    }
  }

  /// Sums of the warps, [warp][pair], from a pair on. There are two of them in turns.
  __device__ std::uint32_t* warp_sums(int pair) const {
    return shared_.template at_address<std::uint32_t>(shared_.base + T::Layout::kAngleSums) +
           (odd_ * kRotatingWarps * kRotatedPairs + pair);
  }
  /// Of the lane's sums makes those of the warp's steps before the lane's, and tells the other warps the sum of
  /// all.
  __device__ __forceinline__ void publish_sums(Angles& sums) const {
    const Lane at;
    Angles all;
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      all[pair] = sums[pair];
#pragma unroll
      for (int distance = kRowVectors; distance < 32; distance *= 2) {
        const std::uint32_t before = __shfl_up_sync(kLanes, all[pair], distance);
        if (at.lane() >= distance) all[pair] += before;
      }
      sums[pair] = all[pair] - sums[pair];
    }
    if (at.lane() >= 32 - kRowVectors)
      *reinterpret_cast<uint4*>(warp_sums(at.first_pair()) + at.warp() * kRotatedPairs) =
          make_uint4(all[0], all[1], all[2], all[3]);
    hopper::barrier_arrive(shared_.angle_sums_barrier());
  }
  /// Adds what comes before the warp's steps.
  __device__ __forceinline__ void add_before(Angles& sums) {
    hopper::barrier_wait(shared_.angle_sums_barrier(), odd_);
    const Lane at;
    const std::uint32_t* const from = warp_sums(at.pair());
    std::uint32_t before = angle_;
#pragma unroll
    for (int warp = 0; warp < kRotatingWarps; ++warp) {
      const std::uint32_t of_warp = from[warp * kRotatedPairs];
      if (warp < at.warp()) before += of_warp;
      angle_ += of_warp;
    }
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair)
      sums[pair] += __shfl_sync(kLanes, before, kRowVectors * pair + at.thread % kRowVectors);
    odd_ ^= 1;
  }

  /// The lane's vector of its step i in k's first tile: swizzled. Tiles are kTile apart, and k's before q's.
  __device__ __forceinline__ Io* vector_of(const Lane& at, int i) const {
    const int vector = at.thread % kRowVectors ^ (at.row() & 4) ^ i;
    return shared_.template at_address<Io>(shared_.b_tile(at_) + (at.row() + i) * 128 + vector * 16);
  }
  __device__ __forceinline__ static Vector load(const Io* row, int tile) {
    return Vector::load(row + tile * (kTile / 2), 0, 0);
  }
  __device__ __forceinline__ static void store(Io* row, int tile, const Values& values) {
    const Vector vector = values.template rounded<Io>();
    *reinterpret_cast<uint4*>(row + tile * (kTile / 2)) =
        make_uint4(vector.words[0], vector.words[1], vector.words[2], vector.words[3]);
  }

  /// Biases of the lane's vector of a tile.
  __device__ __forceinline__ Values bias_of(const Lane& at, int tile) const {
    return Values::load(shared_.template at_address<float>(shared_.base + T::Layout::kBiases) + 64 * tile +
                            2 * at.first_pair(),
                        0, 0);
  }

  /// The lane's vectors of k and q. Those of a step are loaded a step ahead: a shared load takes long beside
  /// products. Steps are a loop, since code that runs once a chunk is always to be fetched. `before`: angles
  /// before the lane's steps, within the warp.
  __device__ __forceinline__ void rotate_rows(Angles& before) {
    constexpr int kTiles = 2 * kHalves;
    const Lane at;
    Io* row = vector_of(at, 0);
    Vector stored[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) stored[tile] = load(row, tile);
    const Values bias_of_k = bias_of(at, 0);
    const Values bias_of_q = bias_of(at, kHalves);
    uint4 angles = *angles_of(at, 0);
    add_before(before);
    const bool turns = at.first_pair() < args_.rotation.angles;
#pragma unroll 1
    for (int i = 0; i < kLaneSteps; ++i) {
      const int next = min(i + 1, kLaneSteps - 1);
      Io* const next_row = vector_of(at, next);
      const Angles of_step{angles.x, angles.y, angles.z, angles.w};
      angles = *angles_of(at, next);
      float sine[kPairs], cosine[kPairs];
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair)
        sine_cosine(before[pair] + of_step[pair], sine[pair], cosine[pair]);
      if constexpr (kHalves == 2)
#pragma unroll
        for (int tile = 1; tile < kTiles; tile += 2) {
          const Values values = bias_of(at, tile).template plus<Io>(stored[tile]);
          stored[tile] = load(next_row, tile);
          store(row, tile, values);
        }
      Values k = bias_of_k.template plus<Io>(stored[0]);
      Values q = bias_of_q.template plus<Io>(stored[kHalves]);
      stored[0] = load(next_row, 0);
      stored[kHalves] = load(next_row, kHalves);
      if (turns)
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) {
          k.turn(pair, sine[pair], cosine[pair]);
          q.turn(pair, sine[pair], cosine[pair]);
        }
      store(row, 0, k);
      store(row, kHalves, q);
      row = next_row;
    }
  }

  __device__ void leave(const Segment& segment, const Item& item) const {
    const Lane at;
    if (at.warp() != 0) return;
    if (segment.end < plan_.chunks.value) {
      args_.rotation.handed[blockIdx.x * kRotatedPairs + at.pair()] = angle_;
      __threadfence();
      __syncwarp();
      if (at.lane() == 0)
        asm volatile("st.release.gpu.global.u32 [%0], 1;\n" ::"l"(args_.rotation.flags + blockIdx.x)
                     : "memory");
    } else if (args_.rotation.final_angle != nullptr) {
      store_final(item, at.pair());
    }
  }
  /// A pair's angle, and k of the last step, not rounded: a pair of the first 64 states, and of the others.
  __device__ void store_final(const Item& item, int pair) const {
    const auto& in = args_.ssd.in;
    const bool turns = pair < args_.rotation.angles;
    if (turns) args_.rotation.final_angle[state_of_angle(pair)] = radians_of_phase(angle_);
    const std::int64_t row =
        ((item.b + 1) * in.seqlen - 1) * in.groups + item.group / args_.rotation.heads_per_group;
    float sine = 0.0F, cosine = 0.0F;
    sine_cosine(angle_, sine, cosine);
    for (int n = 2 * pair; n < in.dstate; n += 64) {
      float2 k = unpack_pair<Io>(
          *reinterpret_cast<const std::uint32_t*>(static_cast<const Io*>(in.B) + row * in.dstate + n));
      const float2 bias =
          *reinterpret_cast<const float2*>(args_.rotation.B_bias + item.group * in.dstate + n);
      k = {k.x + bias.x, k.y + bias.y};
      if (turns && n < 64) k = {k.x * cosine - k.y * sine, k.x * sine + k.y * cosine};
      *reinterpret_cast<float2*>(args_.rotation.final_B + head_ * in.dstate + n) = k;
    }
  }
  /// From the block before.
  __device__ void take(int pair) {
    const std::int64_t giver = static_cast<std::int64_t>(blockIdx.x) - 1;
    unsigned flag = 0;
    while (flag == 0)
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n"
                   : "=r"(flag)
                   : "l"(args_.rotation.flags + giver)
                   : "memory");
    angle_ = __ldcg(args_.rotation.handed + giver * kRotatedPairs + pair);
  }

  const HopperArgs& args_;
  const Plan& plan_;
  Shared shared_;
  int head_ = 0;  ///< (batch, head)
  float dt_ = 0.0F;
  std::uint32_t angle_ = 0;  ///< before the chunk
  std::uint32_t odd_ = 0;
  typename Shared::Projections::Position at_;
};

// Registers of a thread by role: 480 in all, 96 of 640 threads. (With 768 there would be 80, which is less
// than the products of states take.)
inline constexpr int kProducerRegisters = 40;
inline constexpr int kStateRegisters = 112;
inline constexpr int kOutputRegisters = 120;
inline constexpr int kRotatingRegisters = 88;
inline constexpr int kRotatedThreads = ssd_hopper::kThreads + 32 * kRotatingWarps;

}  // namespace ssmbench::mamba3_hopper
