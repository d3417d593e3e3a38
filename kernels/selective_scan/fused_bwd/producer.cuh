#pragma once

// The fast kernels of selective_scan_bwd: the shared memory of the kernel that goes back, and its producer
// warps. The picture is in kernel.cuh.

#include "kernels/common/warp_specialization.cuh"
#include "kernels/selective_scan/fused_bwd/projections.cuh"
#include "kernels/selective_scan/fused_bwd/sequences.cuh"

namespace ssmbench::fused_bwd {

inline constexpr int kHalves = kTileSteps / kKeptSteps;
inline constexpr int kStagedAtOnce = 4;  ///< elements that a producer has registers for

/// The operands of a tile for so many consumer warps; {du, ddelta, dz} take the place of the staged inputs.
template <int warps, bool given_states>
struct alignas(16) GradientTile {
  StepRecord sequences[warps][kTileSteps * kRowPitch];
  float projections[2][kTileSteps * kProjectionPitch];
  /// At the halves, given or from zero; in the latter case at the segment's start, too.
  float states[kHalves + (given_states ? 0 : 1)][kLaneChannels * warps * 32][kLaneStates];
  float elapsed[kHalves][warps * kWarpChannels];  ///< ΣΔ from the segment's start to the halves
};

template <class Io, int warps, bool given_states>
struct alignas(16) GradientShared {
  using Tile = GradientTile<warps, given_states>;
  using Factors = StepFactors[warps][kTileSteps * kRowPitch];

  static constexpr int kTiles = 2;
  /// One more, because all producers add up the sums of one tile, while some stage the next but one.
  static constexpr int kFactorSlots = 3;

  Tile tiles[kTiles];
  /// A pair of steps then leaves its dB, dC [step][state] there.
  Factors factors[kFactorSlots];
  float bias[warps * kWarpChannels], D[warps * kWarpChannels];
  /// u, delta, dout, z.
  StagedVectors<Io> raw[warps][4];
};
static_assert(2 * kRowPitch * sizeof(StepFactors) >= 4 * kPaddedStates * sizeof(float));

/// The index of this thread among the producers. Read again each time, so that addresses are rematerialized
/// and take no registers meanwhile.
template <int warps>
__device__ __forceinline__ int producer_thread() {
  int thread = 0;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread - warps * 32;
}

/// A producer thread, for the channels of one consumer warp.
template <class Io, bool vectorized, bool idle_warps, bool rounds, bool given_states, int warps>
class Producer {
 public:
  using Shared = GradientShared<Io, warps, given_states>;
  using Tile = typename Shared::Tile;
  using Factors = typename Shared::Factors;

  __device__ __forceinline__ Producer(const KernelArgs& kernel, std::int64_t first_segment, Shared& shared)
      : kernel_(kernel),
        args_(kernel.args.scan),
        plan_(kernel.plan),
        shared_(shared),
        own_(args_, plan_, blockIdx.x, 0, first_segment, plan_.run()),
        warp_(__shfl_sync(~0U, producer_thread<warps>() / 32, 0)),
        tiles_of_segment_(static_cast<int>(plan_.tiles())),
        tiles_(static_cast<int>(own_.tiles())),
        last_start_(own_.begin + (tiles_ - 1) * kTileSteps),
        last_valid_(own_.valid(last_start_)),
        sequence_at_(
            sequence().first_at(own_.warp_row + warp_ * kWarpChannels * args_.sequence.dim, last_start_)),
        tile_distance_(kTileSteps * args_.sequence.time),
        projects_(warp_ < ProjectionTile<Io>::kThreads / 32),
        tile_of_segment_((tiles_ - 1) % tiles_of_segment_) {
    const BackwardWorkspace& at = kernel.at;
    const std::int64_t segment = own_.segment + (tiles_ - 1) / tiles_of_segment_;
    const std::int64_t kept = (segment - first_segment) * plan_.kept() + tile_of_segment_ * kHalves;
    if constexpr (given_states) {
      const std::int64_t of_batch = ceil_div(args_.seqlen, kStepsOfX);
      kept_states_ = args_.x +
                     (own_.block.b * of_batch + last_start_ / kStepsOfX) * args_.dim * args_.dstate +
                     own_.block.first * args_.dstate;
    } else {
      const std::int64_t of_block = own_.block_index * kBlockStates;
      first_ = kernel.workspace + at.states + segment * plan_.state_floats() + of_block;
      kept_states_ = kernel.workspace + at.kept_states + kept * plan_.state_floats() + of_block;
      kept_sums_ = kernel.workspace + at.kept_sums + kept * plan_.rows() + own_.row_of_block;
    }
    shares_B_ = kernel.workspace + at.shares_B +
                (own_.block_index * plan_.span + last_start_ - first_segment * plan_.segment) * kPaddedStates;
  }

  __device__ __forceinline__ int tiles() const { return tiles_; }

  /// Starts to load the sequences of the first tile that is done.
  __device__ __forceinline__ void load_first() {
    if (has_channels())
      sequence().template fetch<Staging::gradients>(shared_.raw[warp_], sequence_at_, last_valid_);
    copy_async_commit();
  }

  /// States, B and C of tile i. B and C are waited for: no registers could keep them meanwhile.
  __device__ __forceinline__ void stage_states(int i, Tile& tile) {
    if constexpr (given_states)
      load_given_states(i, tile);
    else
      load_states(tile);
    if (!projects_) return;
    const ProjectionTile<Io> projection(kernel_, own_, last_start_ - i * kTileSteps,
                                        producer_thread<warps>());
    projection.finish(projection.load(valid_of(i)), tile.projections);
  }

  /// What the consumers have left of tile i, to memory, while the next but one is staged.
  __device__ __forceinline__ void store(int i, const Tile& tile, const Factors& sums) {
    if (has_channels()) {
      const std::int64_t at = sequence_at_ + 2 * tile_distance_;
      if constexpr (rounds)
        sequence().add_round(tile.sequences[warp_], summed_gradients(i), kernel_.round, at, valid_of(i));
      else
        sequence().store(tile.sequences[warp_], at, valid_of(i));
    }
    if (warp_ >= warps - kAddingWarps) add_warps(sums, i);
    __syncwarp();  // all lanes have read what is staged next
  }

  /// The sequences of tile i, and starts to load those of the next.
  __device__ __forceinline__ void stage_sequences(int i, Tile& tile, Factors& factors) {
    copy_async_wait<1>();
    if (has_channels())
      sequence().template stage<Staging::gradients, kStagedAtOnce>(
          tile.sequences[warp_], factors[warp_], shared_.raw[warp_], shared_.bias + warp_ * kWarpChannels,
          valid_of(i));
    if (has_channels() && i + 1 < tiles_)
      sequence().template fetch<Staging::gradients>(shared_.raw[warp_], sequence_at_ - tile_distance_,
                                                    kTileSteps);
    copy_async_commit();
    copy_async_wait<1>();
  }

  /// Goes on to the tile before.
  __device__ __forceinline__ void move() { sequence_at_ -= tile_distance_; }

 private:
  /// One half of the producers of a large block stages B and C, the other adds dB and dC.
  static constexpr int kAddingWarps = 4;

  /// Where the thread's gradients of tile i are added up over rounds.
  __device__ __forceinline__ float* summed_gradients(int i) const {
    constexpr int kOfStep = kBlockChannels * kSummedGradients;
    const std::int64_t shares = shares_B_ - (kernel_.workspace + kernel_.at.shares_B);
    return kernel_.workspace + kernel_.at.gradients + shares * (kOfStep / kPaddedStates) -
           i * (kTileSteps * kOfStep) + producer_thread<warps>() * 4;
  }
  /// Only the last tile, which is the first to be done, may have fewer than 16 steps.
  __device__ __forceinline__ int valid_of(int tile) const { return tile == 0 ? last_valid_ : kTileSteps; }
  /// Whether its consumer warp has channels.
  __device__ __forceinline__ bool has_channels() const {
    return !idle_warps || warp_ * kWarpChannels < own_.warp_count;  // that of warp 0
  }
  __device__ __forceinline__ SequenceTile<Io, vectorized> sequence() const {
    return SequenceTile<Io, vectorized>(kernel_.args, own_.warp_count - warp_ * kWarpChannels,
                                        producer_thread<warps>() % 32);
  }

  /// Starts to copy the states at the halves and at the segment's start, and ΣΔ.
  __device__ __forceinline__ void load_states(Tile& tile) {
    const int thread = producer_thread<warps>();
#pragma unroll
    for (int r = 0; r < kLaneChannels; ++r) {
      const int from = (r * kConsumerThreads + thread) * kLaneStates;
      const int to = r * warps * 32 + thread;
      copy_async_16(shared_address(tile.states[kHalves][to]), first_ + from);
#pragma unroll
      for (int half = 0; half < kHalves; ++half)
        copy_async_16(shared_address(tile.states[half][to]),
                      kept_states_ + half * plan_.state_floats() + from);
    }
    constexpr int kSumVectors = warps * kWarpChannels / 4;
    if (thread < kHalves * kSumVectors)
      copy_async_16(shared_address(tile.elapsed[0] + 4 * thread),
                    kept_sums_ + thread / kSumVectors * plan_.rows() + thread % kSumVectors * 4);
    copy_async_commit();
    kept_states_ -= kHalves * plan_.state_floats();
    kept_sums_ -= kHalves * plan_.rows();
    if (--tile_of_segment_ < 0) {
      tile_of_segment_ = tiles_of_segment_ - 1;
      first_ -= plan_.state_floats();
    }
  }

  /// Starts to copy the states at the halves of tile i, from x, where they lie in order. Zeros where there
  /// are none: sums over channels have terms of these too.
  __device__ __forceinline__ void load_given_states(int i, Tile& tile) {
    const int thread = producer_thread<warps>();
    const LaneMap lane{thread % 32};
    const std::int64_t pitch = args_.dim * args_.dstate;
#pragma unroll
    for (int r = 0; r < kLaneChannels; ++r) {
      const int channel = thread / 32 * kWarpChannels + lane.channel(r);
      const bool exists = channel < own_.block.count && lane.first_state() < args_.dstate;
#pragma unroll
      for (int half = 0; half < kHalves; ++half)
        copy_async_16(
            shared_address(tile.states[half][r * warps * 32 + thread]),
            kept_states_ + (exists ? half * pitch + channel * args_.dstate + lane.first_state() : 0),
            exists && half * kKeptSteps < valid_of(i) ? 16 : 0);
    }
    copy_async_commit();
    kept_states_ -= kHalves * pitch;
  }

  /// dB and dC of a tile, four states of a step a thread: the sums over the warps.
  __device__ __forceinline__ void add_warps(const Factors& sums, int tile) const {
    constexpr int kVectors = kTileSteps * kPaddedStates / kLaneStates;  // of dB or dC
    static_assert(kAddingWarps * 32 == 2 * kVectors);
    const int thread = producer_thread<warps>() - (warps - kAddingWarps) * 32;
    const int which = thread / kVectors;
    const int step = thread % kVectors / (kPaddedStates / kLaneStates);
    const int state = thread % (kPaddedStates / kLaneStates) * kLaneStates;
    const float* const from = reinterpret_cast<const float*>(sums[0] + step / 2 * 2 * kRowPitch) +
                              (2 * which + step % 2) * kPaddedStates + state;
    float total[kLaneStates] = {};
#pragma unroll
    for (int other = 0; other < warps; ++other) {
      if (idle_warps && other * kWarpChannels >= own_.block.count) break;  // no channels, no sums
      float term[kLaneStates];
      load_vectors(term, from + other * 2 * kTileSteps * kRowPitch);
#pragma unroll
      for (int s = 0; s < kLaneStates; ++s) total[s] += term[s];
    }
    store_vectors(shares_B_ + (which == 0 ? 0 : kernel_.at.shares_C - kernel_.at.shares_B) +
                      (step - tile * kTileSteps) * kPaddedStates + state,
                  total);
  }

  const KernelArgs& kernel_;
  const ScanArgs& args_;
  const BackwardPlan& plan_;
  Shared& shared_;
  const WarpCoordinates own_;
  const int warp_;  ///< of the consumers
  const int tiles_of_segment_, tiles_;
  const std::int64_t last_start_;
  const int last_valid_;
  // What belongs to the tile that is staged next.
  std::int64_t sequence_at_;
  const std::int64_t tile_distance_;
  const bool projects_;       ///< stages B and C
  int tile_of_segment_;       ///< of the tile that is staged next
  const float* first_;        ///< its states at the start of its segment
  const float* kept_states_;  ///< at its own start, from zero; or its states in x
  const float* kept_sums_;    ///< ΣΔ from the segment's start to its own
  float* shares_B_;
};

/// What a producer thread does. Before the barrier after which a tile is computed, it stores what the last
/// but one has left, and stages the tile in its slot.
template <class Io, bool vectorized, bool idle_warps, bool rounds, bool given_states, int warps>
__device__ __forceinline__ void produce(const KernelArgs& kernel, std::int64_t first_segment,
                                        GradientShared<Io, warps, given_states>& shared) {
  using Shared = GradientShared<Io, warps, given_states>;
  Producer<Io, vectorized, idle_warps, rounds, given_states, warps> producer(kernel, first_segment, shared);
  const int tiles = producer.tiles();
  producer.load_first();
  int factor_slot = 0;  // of the tile that is staged next
#pragma unroll 1
  for (int i = 0; i < tiles + 2; ++i) {
    auto& tile = shared.tiles[i % 2];
    const bool exists = i < tiles;
    const int next_factor_slot =
        factor_slot == Shared::kFactorSlots - 1 ? 0 : factor_slot + 1;  // (i − 2) mod 3
    if (exists) producer.stage_states(i, tile);
    if (i >= 2) producer.store(i - 2, tile, shared.factors[next_factor_slot]);
    if (exists) producer.stage_sequences(i, tile, shared.factors[factor_slot]);
    producer.move();
    if (i <= tiles) block_barrier();
    factor_slot = next_factor_slot;
  }
}

}  // namespace ssmbench::fused_bwd
