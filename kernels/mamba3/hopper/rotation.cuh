#pragma once

// The rotating warpgroup of cuda-hopper: it makes q and k of a head of those of its group, in place,
//
//   θ_t = θ_{t-1} + DT_t·π·tanh(rate_t)        q_t = Rot(θ_t)(Q_t + bias),  k_t = Rot(θ_t)(K_t + bias)
//
// Warp w has the chunk's steps 16w … 16w + 15, and a lane a pair of the first 64 states and one of the
// others. Only the first 32 pairs turn. Angles are 32-bit integers (phase.h): sums of a warp's steps go to
// the others through shared memory, the sum of all stays in a register, and goes to the next block where an
// item is cut.

#include "kernels/common/io_types.cuh"
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
  static constexpr int kHalves = T::Layout::kHalves;
  static constexpr int kWarpSteps = ssd_hopper::kSteps / kRotatingWarps;
  static constexpr int kAtOnce = 4;  ///< rows: a shared load takes long beside products
  static constexpr int kRatesAtOnce = 8;
  static constexpr int kTileWords = kTile / 4;
  static constexpr unsigned kLanes = 0xFFFFFFFFU;

 public:
  __device__ RotatingWarpgroup(const HopperArgs& args, const Shared& shared, int thread)
      : args_(args), plan_(args.plan), shared_(shared), warp_(thread / 32), lane_(thread % 32) {}

  __device__ void run() {
    for (int i = 0; i < plan_.segments(blockIdx.x); ++i) {
      const Segment segment = plan_.segment(blockIdx.x, i);
      const Item item = plan_.item(segment.item);
      enter(segment, item);
      for (int chunk = segment.first; chunk < segment.end; ++chunk) rotate(chunk, chunk + 1 < segment.end);
      leave(segment, item);
    }
  }

 private:
  /// The lane's pair of each half of the states.
  struct Pairs {
    float2 half[kHalves];
  };

  __device__ void load_biases(Pairs& to, const float* from, int head) const {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int n = 64 * half + 2 * lane_;
      const std::int64_t dstate = args_.ssd.in.dstate;
      to.half[half] =
          n < dstate ? *reinterpret_cast<const float2*>(from + head * dstate + n) : make_float2(0.0F, 0.0F);
    }
  }

  __device__ void enter(const Segment& segment, const Item& item) {
    const int head = item.group;
    load_biases(of_k_, args_.rotation.B_bias, head);
    load_biases(of_q_, args_.rotation.C_bias, head);
    const std::int64_t row = item.b * args_.ssd.in.nheads + head;
    dt_of_head_ = args_.rotation.dt + row * args_.ssd.in.seqlen;
    row_ = row;
    dt_ = load_dt(segment.first);
    turns_ = lane_ < args_.rotation.angles;
    angle_ = 0;
    if (segment.first > 0) {
      take();
    } else if (turns_ && args_.rotation.input_angle != nullptr) {
      angle_ = phase_of_radians(args_.rotation.input_angle[row * args_.rotation.angles + lane_]);
    }
  }

  /// DT of the warp's step `lane` of a chunk; 0 past the end.
  __device__ float load_dt(int chunk) const {
    const int t = chunk * ssd_hopper::kSteps + kWarpSteps * warp_ + lane_;
    return lane_ < kWarpSteps && t < args_.ssd.in.seqlen ? dt_of_head_[t] : 0.0F;
  }

  __device__ __forceinline__ void rotate(int chunk, bool has_next) {
    shared_.projections().wait_full(at_);
    const std::uint32_t all = add_up();
    if (has_next) dt_ = load_dt(chunk + 1);
    std::uint32_t before = angle_;
    angle_ += exchange(all, before);
    if (args_.rotation.final_B != nullptr) store_final(chunk, before);
#pragma unroll 1
    for (int i = 0; i < kWarpSteps; i += 8) {
      turn_steps<0>(i, before);
      turn_steps<kAtOnce>(i + kAtOnce, before);
    }
    hopper::fence_async_proxy();
    ssd_hopper::warp_arrive(shared_.projections().done(at_), lane_);
    at_.advance();
  }

  /// The lane's of the warp's steps in shared memory, rows of kRotatedPairs.
  __device__ std::uint32_t* angles_of_lane() const {
    return shared_.template at_address<std::uint32_t>(shared_.base + T::Layout::kAngles) +
           (2 * kRotatingWarps + kWarpSteps * warp_) * kRotatedPairs + lane_;
  }
  /// Sums of the increments of the warp's steps, from its first to each, to shared memory. Returns that of
  /// all.
  __device__ __forceinline__ std::uint32_t add_up() const {
    std::uint32_t* const to = angles_of_lane();
    const Io* const rates =
        shared_.template at_address<Io>(shared_.rates(at_)) + kWarpSteps * warp_ * kRotatedPairs + lane_;
    std::uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < kWarpSteps; i += kRatesAtOnce) {
      std::uint32_t increments[kRatesAtOnce];
#pragma unroll
      for (int k = 0; k < kRatesAtOnce; ++k) {
        const float dt = __shfl_sync(kLanes, dt_, i + k);
        increments[k] = phase_step(dt, to_float(rates[(i + k) * kRotatedPairs]));
      }
#pragma unroll
      for (int k = 0; k < kRatesAtOnce; ++k) to[(i + k) * kRotatedPairs] = sum += increments[k];
    }
    return sum;
  }

  /// Adds the sums of the warps before to `before`. Returns that of all warps.
  __device__ __forceinline__ std::uint32_t exchange(std::uint32_t own, std::uint32_t& before) {
    auto* const sums = shared_.template at_address<std::uint32_t>(shared_.base + T::Layout::kAngles) +
                       odd_ * kRotatingWarps * kRotatedPairs + lane_;
    sums[warp_ * kRotatedPairs] = own;
    asm volatile("bar.sync 4, 128;\n" ::: "memory");
    std::uint32_t all = 0;
#pragma unroll
    for (int warp = 0; warp < kRotatingWarps; ++warp) {
      const std::uint32_t sum = sums[warp * kRotatedPairs];
      if (warp < warp_) before += sum;
      all += sum;
    }
    odd_ ^= 1;
    return all;
  }

  /// q and k of the warp's steps first … first + 3, where first % 8 = kFirst. They are loaded before any is
  /// stored: the compiler knows of no order among them.
  template <int kFirst>
  __device__ __forceinline__ void turn_steps(int first, std::uint32_t before) const {
    const std::uint32_t* const angles = angles_of_lane() + first * kRotatedPairs;
    const std::uint32_t row = shared_.b_tile(at_) + (kWarpSteps * warp_ + first) * 128 + lane_ % 4 * 4;
    std::uint32_t stored[kAtOnce][2 * kHalves];
    float radians[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      radians[i] = kTurnInRadians * turns_of_phase(before + angles[i * kRotatedPairs]);
      const auto* const words = words_of<kFirst>(row, i);
#pragma unroll
      for (int tile = 0; tile < 2 * kHalves; ++tile) stored[i][tile] = words[tile * kTileWords];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float sine = __sinf(radians[i]);
      const float cosine = __cosf(radians[i]);
      auto* const words = words_of<kFirst>(row, i);
#pragma unroll
      for (int tile = 0; tile < 2 * kHalves; ++tile) {
        const float2 bias = (tile < kHalves ? of_k_ : of_q_).half[tile % kHalves];
        float2 x = unpack_pair<Io>(stored[i][tile]);
        x = {x.x + bias.x, x.y + bias.y};
        if (tile % kHalves == 0 && turns_) x = {x.x * cosine - x.y * sine, x.x * sine + x.y * cosine};
        words[tile * kTileWords] = pack_pair<Io>(x.x, x.y);
      }
    }
  }
  /// The lane's word of a step's row in k's first tile: swizzled.
  template <int kFirst>
  __device__ std::uint32_t* words_of(std::uint32_t row, int i) const {
    return shared_.template at_address<std::uint32_t>(row + i * 128 + ((lane_ / 4 ^ kFirst + i) << 4));
  }
  /// k of the sequence's last step, not rounded, if it is one of the warp's in this chunk. Before it is
  /// turned in place.
  __device__ void store_final(int chunk, std::uint32_t before) const {
    const std::int64_t last = args_.ssd.in.seqlen - 1 - std::int64_t{chunk} * ssd_hopper::kSteps;
    const int i = static_cast<int>(last) - kWarpSteps * warp_;
    if (last >= ssd_hopper::kSteps || i < 0 || i >= kWarpSteps) return;
    const float radians = kTurnInRadians * turns_of_phase(before + angles_of_lane()[i * kRotatedPairs]);
    const float sine = __sinf(radians);
    const float cosine = __cosf(radians);
    const auto* const words = shared_.template at_address<std::uint32_t>(
        shared_.b_tile(at_) + (kWarpSteps * warp_ + i) * 128 + lane_ % 4 * 4 + ((lane_ / 4 ^ i & 7) << 4));
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int n = 64 * half + 2 * lane_;
      if (n >= args_.ssd.in.dstate) break;
      float2 x = unpack_pair<Io>(words[half * kTileWords]);
      x = {x.x + of_k_.half[half].x, x.y + of_k_.half[half].y};
      if (half == 0 && turns_) x = {x.x * cosine - x.y * sine, x.x * sine + x.y * cosine};
      *reinterpret_cast<float2*>(args_.rotation.final_B + row_ * args_.ssd.in.dstate + n) = x;
    }
  }

  __device__ void leave(const Segment& segment, const Item&) const {
    if (warp_ != 0) return;
    if (segment.end < plan_.chunks.value) {
      args_.rotation.handed[blockIdx.x * kRotatedPairs + lane_] = angle_;
      __threadfence();
      __syncwarp();
      if (lane_ == 0)
        asm volatile("st.release.gpu.global.u32 [%0], 1;\n" ::"l"(args_.rotation.flags + blockIdx.x)
                     : "memory");
    } else if (turns_ && args_.rotation.final_angle != nullptr) {
      args_.rotation.final_angle[row_ * args_.rotation.angles + lane_] = radians_of_phase(angle_);
    }
  }
  /// From the block before.
  __device__ void take() {
    const std::int64_t giver = static_cast<std::int64_t>(blockIdx.x) - 1;
    unsigned flag = 0;
    while (flag == 0)
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n"
                   : "=r"(flag)
                   : "l"(args_.rotation.flags + giver)
                   : "memory");
    angle_ = __ldcg(args_.rotation.handed + giver * kRotatedPairs + lane_);
  }

  const HopperArgs& args_;
  const Plan& plan_;
  Shared shared_;
  int warp_, lane_;
  bool turns_ = false;  ///< the lane's first pair
  Pairs of_k_, of_q_;   ///< biases
  const float* dt_of_head_ = nullptr;
  std::int64_t row_ = 0;  ///< (batch, head)
  float dt_ = 0.0F;
  std::uint32_t angle_ = 0;  ///< before the chunk
  int odd_ = 0;
  typename Shared::Projections::Position at_;
};

// Registers of a thread by role: 480 in all, 96 of 640 threads. (With 768 there would be 80, which is less
// than the products of states take.)
inline constexpr int kProducerRegisters = 48;
inline constexpr int kStateRegisters = 112;
inline constexpr int kOutputRegisters = 120;
inline constexpr int kRotatingRegisters = 80;
inline constexpr int kRotatedThreads = ssd_hopper::kThreads + 32 * kRotatingWarps;

}  // namespace ssmbench::mamba3_hopper
