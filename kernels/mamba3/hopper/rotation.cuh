#pragma once

// The rotating warpgroup of cuda-hopper: it makes q and k of a head of those of its group, in place,
//
//   q_t = Rot(θ_t)(Q_t + bias),  k_t = Rot(θ_t)(K_t + bias)
//
// θ_t is the sum of what the chunks before add and of the step's phase within its chunk, which another kernel
// has made (phases.cuh). Warp w has the chunk's steps 16w … 16w + 15. Lane 8g + v has four of them, 16w + 4g
// on, and of each of their rows in a tile the 16-byte vector v: pairs 4v … 4v + 3 of the first 64 states, which
// may turn, and states 8v … 8v + 7 of the others, which do not.

#include "kernels/mamba3/hopper/quads.cuh"
#include "kernels/mamba3/phase.h"
#include "kernels/ssd_chunk_scan/hopper/block.cuh"

namespace ssmbench::mamba3_hopper {

using ssd_hopper::HopperArgs;
using ssd_hopper::Item;
using ssd_hopper::kGroupThreads;
using ssd_hopper::kRotatedPairs;
using ssd_hopper::kRotatingWarps;
using ssd_hopper::kTile;
using ssd_hopper::Plan;
using ssd_hopper::Segment;
using ssd_hopper::SharedMemory;

template <class T>
class RotatingWarpgroup {
  using Io = typename T::Io;
  using Args = typename T::Args;
  using Shared = SharedMemory<T>;
  using Segments = ssd_hopper::SegmentsOf<T>;
  using Vector = Quad<true>;
  using Values = QuadValues<true>;
  static constexpr int kHalves = T::Layout::kHalves;
  static constexpr int kLaneSteps = 4;
  static constexpr int kPairs = 4;       ///< of a vector
  static constexpr int kRowVectors = 8;  ///< of a row of a tile
  static constexpr unsigned kLanes = 0xFFFFFFFFU;

 public:
  __device__ RotatingWarpgroup(const Args& args, const Shared& shared) : args_(args), shared_(shared) {}

  __device__ void run() {
    for (Segments segments(args_); !segments.done(); segments.advance()) {
      const Segment segment = segments.segment();
      const Item item = segments.item(segment);
      enter(segment, item, first_chunk(segments, item));
      for (int chunk = segment.first; chunk < segment.end; ++chunk) rotate();
      if (segments.ends(segment) && args_.rotation.final_angle != nullptr)
        store_final(segments, segments.item(segment));
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
  };
  using Angles = std::uint32_t[kPairs];  ///< of the lane's pairs

  __device__ bool turns(const Lane& at) const { return at.first_pair() < args_.rotation.angles; }

  /// Sines and cosines are the hardware's, 2^-21 off on [−π, π].
  __device__ __forceinline__ static void sine_cosine(std::uint32_t angle, float& sine, float& cosine) {
    const float radians = static_cast<float>(static_cast<std::int32_t>(angle)) * (kTurnInRadians * 0x1p-32F);
    sine = __sinf(radians);
    cosine = __cosf(radians);
  }

  /// (batch, head)
  __device__ std::int64_t head_of(const Item& item) const {
    return std::int64_t{item.b} * args_.ssd.in.nheads + item.group;
  }
  /// From what a chunk adds to what the next one adds.
  __device__ std::int64_t chunk_row() const { return args_.ssd.in.nheads * args_.rotation.angles; }

  /// The row of a sequence's first chunk in Rotation::of_chunks.
  __device__ std::int64_t first_chunk(const Segments& segments, const Item& item) const {
    if constexpr (T::kPacked)
      return ssd_hopper::packed_slot(segments.begin(), item.b, kSegment);
    else
      return std::int64_t{item.b} * args_.plan.chunks.value;
  }
  /// Biases, and the angles that the chunks before have added up to. `row`: of the sequence's first chunk.
  __device__ void enter(const Segment& segment, const Item& item, std::int64_t row) {
    const Lane at;
    of_chunk_ =
        args_.rotation.of_chunks + row * chunk_row() + item.group * args_.rotation.angles + at.first_pair();
    Angles sums{};
    if (turns(at))
#pragma unroll 4
      for (int chunk = at.thread / kRowVectors; chunk < segment.first; chunk += kGroupThreads / kRowVectors)
        add_vector(sums, *reinterpret_cast<const uint4*>(of_chunk_ + chunk * chunk_row()));
    of_chunk_ += segment.first * chunk_row();
#pragma unroll
    for (std::uint32_t& sum : sums)
#pragma unroll
      for (int distance = kRowVectors; distance < 32; distance *= 2)
        sum += __shfl_xor_sync(kLanes, sum, distance);
    group_barrier();  // the segment before is done
    auto* const sums_of = shared_.template at_address<uint4>(shared_.base + T::Layout::kAngleSums);
    if (at.lane() < kRowVectors)
      sums_of[at.warp() * kRowVectors + at.lane()] = make_uint4(sums[0], sums[1], sums[2], sums[3]);
    stage_biases(at, item.group);
    group_barrier();
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      angles_[pair] = 0;
      if (turns(at) && args_.rotation.input_angle != nullptr)
        angles_[pair] =
            phase_of_radians(args_.rotation.input_angle[state_of_angle(item, at.first_pair() + pair)]);
    }
#pragma unroll
    for (int warp = 0; warp < kRotatingWarps; ++warp)
      add_vector(angles_, sums_of[warp * kRowVectors + at.thread % kRowVectors]);
  }
  __device__ __forceinline__ static void add_vector(Angles& sums, const uint4& more) {
    sums[0] += more.x;
    sums[1] += more.y;
    sums[2] += more.z;
    sums[3] += more.w;
  }
  /// Where the angle of a pair lies in a (B, H, S) tensor.
  __device__ std::int64_t state_of_angle(const Item& item, int pair) const {
    return head_of(item) * args_.rotation.angles + pair;
  }

  /// Biases of k and q to shared memory, zeros behind dstate. Of a tile first the first halves of vectors, then
  /// the others, so that lanes read from different banks.
  __device__ void stage_biases(const Lane& at, int head) const {
    const int n = at.thread;
    const std::int64_t dstate = args_.ssd.in.dstate;
    if (n >= T::kStates) return;
    float* const to = shared_.template at_address<float>(shared_.base + T::Layout::kBiases) + n / 64 * 64 +
                      n % 8 / 4 * kHalfVectors + n % 64 / 8 * 4 + n % 4;
    to[0] = n < dstate ? args_.rotation.B_bias[head * dstate + n] : 0.0F;
    to[T::kStates] = n < dstate ? args_.rotation.C_bias[head * dstate + n] : 0.0F;
  }
  static constexpr int kHalfVectors = 4 * kRowVectors;  ///< floats
  __device__ static void group_barrier() {
    asm volatile("bar.sync 4, 128;\n" ::: "memory");
  }

  __device__ __forceinline__ void rotate() {
    uint4 of_chunk = make_uint4(0, 0, 0, 0);
    if (turns(Lane())) of_chunk = *reinterpret_cast<const uint4*>(of_chunk_);
    of_chunk_ += chunk_row();
    shared_.projections().wait_full(at_);
    rotate_rows();
    hopper::fence_async_proxy();
    ssd_hopper::warp_arrive(shared_.projections().done(at_), Lane().lane());
    at_.advance();
    add_vector(angles_, of_chunk);
  }

  /// The lane's vector of its first step in k's first tile: swizzled. Tiles are kTile apart, and k's before q's.
  __device__ __forceinline__ std::uint32_t first_vector(const Lane& at) const {
    const int vector = at.thread % kRowVectors ^ (at.row() & 4);
    return shared_.b_tile(at_) + at.row() * 128 + vector * 16;
  }
  /// The same of step i: four rows are aligned to their size.
  __device__ __forceinline__ Io* vector_of(std::uint32_t first, int i) const {
    return shared_.template at_address<Io>(first ^ i * (128 + 16));
  }
  __device__ __forceinline__ static Vector load(const Io* row, int tile) {
    return Vector::load(row + tile * (kTile / 2), 0, 0);
  }
  __device__ __forceinline__ static void store(Io* row, int tile, const Values& values) {
    const Vector vector = values.template rounded<Io>();
    *reinterpret_cast<uint4*>(row + tile * (kTile / 2)) =
        make_uint4(vector.words[0], vector.words[1], vector.words[2], vector.words[3]);
  }
  /// Phases of the lane's pairs at its step i, within the chunk.
  __device__ __forceinline__ uint2 load_phases(const Lane& at, int i) const {
    return *reinterpret_cast<const uint2*>(shared_.template at_address<std::uint16_t>(shared_.phases(at_)) +
                                           (at.row() + i) * kRotatedPairs + at.first_pair());
  }

  /// Biases of the lane's vector of a tile.
  __device__ __forceinline__ Values bias_of(const Lane& at, int tile) const {
    const float* const from =
        shared_.template at_address<float>(shared_.base + T::Layout::kBiases) + 64 * tile + at.first_pair();
    Values biases;
    load_vector(biases.values, from);
    load_vector(biases.values + 4, from + kHalfVectors);
    return biases;
  }

  /// The lane's vectors of k and q. Those of a step are loaded a step ahead: a shared load takes long beside
  /// products. Steps are a loop, since code that runs once a chunk is always to be fetched.
  __device__ __forceinline__ void rotate_rows() const {
    constexpr int kTiles = 2 * kHalves;
    const Lane at;
    const std::uint32_t first = first_vector(at);
    Values biases[kTiles];
    Vector stored[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) stored[tile] = load(vector_of(first, 0), tile);
    uint2 phases = load_phases(at, 0);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) biases[tile] = bias_of(at, tile);
    const bool turning = turns(at);
#pragma unroll 1
    for (int i = 0; i < kLaneSteps; ++i) {
      Io* const row = vector_of(first, i);
      const int next = min(i + 1, kLaneSteps - 1);
      Io* const next_row = vector_of(first, next);
      if constexpr (kHalves == 2)
#pragma unroll
        for (int tile = 1; tile < kTiles; tile += 2) {
          const Values sum = biases[tile].template plus<Io>(stored[tile]);
          stored[tile] = load(next_row, tile);
          store(row, tile, sum);
        }
      const Angles of_step{phases.x << 16, phases.x & 0xFFFF0000U, phases.y << 16, phases.y & 0xFFFF0000U};
      phases = load_phases(at, next);
      float sine[kPairs], cosine[kPairs];
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair)
        sine_cosine(angles_[pair] + of_step[pair], sine[pair], cosine[pair]);
#pragma unroll
      for (int tile = 0; tile < kTiles; tile += kHalves) {
        Values values = biases[tile].template plus<Io>(stored[tile]);
        stored[tile] = load(next_row, tile);
        if (turning)
#pragma unroll
          for (int pair = 0; pair < kPairs; ++pair) values.turn(pair, sine[pair], cosine[pair]);
        store(row, tile, values);
      }
    }
  }

  /// Steps up to the end of an item's sequence, in all of the batch.
  __device__ std::int64_t end_of(const Segments& segments, const Item& item) const {
    if constexpr (T::kPacked)
      return segments.begin() + segments.steps();
    else
      return (item.b + 1) * args_.ssd.in.seqlen;
  }
  __device__ static bool is_empty([[maybe_unused]] const Segments& segments) {
    if constexpr (T::kPacked)
      return segments.steps() == 0;
    else
      return false;
  }

  /// Angles behind the last step, and its k, not rounded.
  __device__ void store_final(const Segments& segments, const Item& item) const {
    const Lane at;
    if (at.warp() != 0) return;
    const int index = at.lane() / kRowVectors;  // of its pair of the vector's
    std::uint32_t angle = 0;
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair)
      if (pair == index) angle = angles_[pair];
    const int pair = at.first_pair() + index;
    if (pair < args_.rotation.angles)
      args_.rotation.final_angle[state_of_angle(item, pair)] = radians_of_phase(angle);
    if (!is_empty(segments)) store_final(item, end_of(segments, item) - 1, pair, angle);
  }
  /// Of a pair of the first 64 states, and of the others, at a step of the batch.
  __device__ void store_final(const Item& item, std::int64_t step, int pair, std::uint32_t angle) const {
    const auto& in = args_.ssd.in;
    const std::int64_t row = step * in.groups + item.group / args_.rotation.heads_per_group;
    float sine = 0.0F, cosine = 0.0F;
    sine_cosine(angle, sine, cosine);
    for (int n = 2 * pair; n < in.dstate; n += 64) {
      float2 k = unpack_pair<Io>(
          *reinterpret_cast<const std::uint32_t*>(static_cast<const Io*>(in.B) + row * in.dstate + n));
      const float2 bias =
          *reinterpret_cast<const float2*>(args_.rotation.B_bias + item.group * in.dstate + n);
      k = {k.x + bias.x, k.y + bias.y};
      if (pair < args_.rotation.angles && n < 64) k = {k.x * cosine - k.y * sine, k.x * sine + k.y * cosine};
      *reinterpret_cast<float2*>(args_.rotation.final_B + head_of(item) * in.dstate + n) = k;
    }
  }

  const Args& args_;
  Shared shared_;
  Angles angles_{};                          ///< before the chunk
  const std::uint32_t* of_chunk_ = nullptr;  ///< what it adds to the lane's
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
