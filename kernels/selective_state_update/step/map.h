#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/common/hardware.h"
#include "kernels/common/host_device.h"
#include "kernels/common/index_math.h"
#include "model/dtype.h"

// Which thread of cuda-step holds which states. Pure integer arithmetic: tests cover all of it without a GPU.

namespace ssmbench {

/// Blocks in the y or z dimension of a CUDA grid.
inline constexpr std::int64_t kMaxGridYZ = 65535;

// Tuned on an H200 (docs/kernels/state-update.md).

/// Warps of a block: small blocks of a launch that only moves states end and begin without waves.
inline constexpr int kStepHeadWarps = 2;
inline constexpr int kStepWarps = 4;
/// Vectors of 16 bytes that a thread has in flight, of states in f32 and in 16 bits.
inline constexpr int kStepWideVectors = 4;
inline constexpr int kStepNarrowVectors = 8;
/// Rows of words that a thread holds, of which each takes up to eight registers.
inline constexpr int kStepWordRows = 4;
/// States that a thread holds in f32 for several tokens.
inline constexpr int kStepTokenStates = 32;
/// Rows of quantized states that a thread holds, form mamba2 and one token; and where fewer lanes share a
/// row.
inline constexpr int kStepQuantizedRows = 8;
inline constexpr int kStepFewQuantizedRows = 4;
/// Rows whose scales are found together: the chain of shuffles is long.
inline constexpr int kStepQuantizedGroup = 2;
/// Blocks of that kernel that a multiprocessor has registers for; and with states of 8 bits that are rounded
/// stochastically.
inline constexpr int kStepQuantizedBlocks = 10;
inline constexpr int kStepRandomQuantizedBlocks = 8;
/// Tokens that tensor cores take at once, and rows of a warp there.
inline constexpr int kProductTokens = 8;
inline constexpr int kProductRows = 16;
/// The most such tiles of rows of a warp, one after the other: x and z of all are in shared memory.
inline constexpr int kProductRun = 8;
/// Such tiles of rows whose states a warp has in shared memory or under way to it.
inline constexpr int kProductStages = 2;
/// Whether B and C of a head are in shared memory: not beside states in f32, which fill it, nor in i16, of
/// which all are in registers for the scale of a row, two operands each.
SSMBENCH_HD constexpr bool stages_projections(DType state) {
  return state != DType::f32 && state != DType::i16;
}
/// Blocks that a multiprocessor has registers for: 128 a thread, or 168 with B and C; of 256 states there is
/// no shared memory for more.
constexpr int product_blocks(DType state, int dstate) {
  return dstate > 128 ? 4 : stages_projections(state) ? 8 : 6;
}
/// The most heads of a block of states of 8 bits that are rounded stochastically (to nearest it has one), and
/// the fewest blocks of a multiprocessor that are left.
inline constexpr int kCodedHeadsRun = 4;
inline constexpr int kCodedHeadsBlocks = kStepRandomQuantizedBlocks - 1;
/// Sequences whose states a thread of form mamba1 holds at most, and how often it takes as many, where that
/// leaves blocks for every multiprocessor's registers: of states in f32 and in 16 bits.
inline constexpr int kStepSequences = 4;
inline constexpr int kStepWideTurns = 2;
inline constexpr int kStepNarrowTurns = 4;
inline constexpr int kStepChannelBlocks = 8;
/// Channels of a block of form mamba1 with so many states; blocks that a multiprocessor has registers for,
/// with one token and with several; sequences that a warp takes at most where all blocks begin at once, and
/// where there are more of them.
inline constexpr int kTileChannels = 64;
inline constexpr int kTileStates = 16;
inline constexpr int kChannelTileBlocks = 5;
inline constexpr int kTokenTileBlocks = 4;
inline constexpr int kChannelTileTurns = 8;
inline constexpr int kManyChannelTileTurns = 4;
/// With fewer warps than these threads hold one row each: the launch is bound by latency.
inline constexpr std::int64_t kStepManyWarps = 256;

/// How a row of dstate states lies across a group of lanes.
enum class RowShape {
  one_vector,   ///< 16 bytes of neighbouring states per lane: a row has at most 32 such vectors
  two_vectors,  ///< twice that, half a row apart or less
  words,        ///< every lanes-th 4 bytes: rows of no whole vectors
  scalars,      ///< every lanes-th state, at most eight: rows of no whole words
};

/// States in a vector of a lane.
SSMBENCH_HD constexpr int vector_states(RowShape shape, int state_bytes) {
  return shape == RowShape::scalars ? 1 : (shape == RowShape::words ? 4 : 16) / state_bytes;
}
/// Vectors that a lane has of a row: words of at most 16 states.
SSMBENCH_HD constexpr int vectors_per_row(RowShape shape, int state_bytes) {
  return shape == RowShape::one_vector    ? 1
         : shape == RowShape::two_vectors ? 2
         : shape == RowShape::words       ? (state_bytes == 1 ? 4 : 8)
                                          : 8;
}
/// The most rows that a thread holds at once, form mamba2.
SSMBENCH_HD constexpr int most_rows(RowShape shape, int state_bytes, bool several_tokens) {
  if (shape == RowShape::scalars) return 1;
  if (shape == RowShape::words && !several_tokens) return kStepWordRows;
  const int vectors = several_tokens     ? kStepTokenStates / vector_states(shape, state_bytes)
                      : state_bytes == 4 ? kStepWideVectors
                                         : kStepNarrowVectors;
  return vectors / vectors_per_row(shape, state_bytes);
}

/// Blocks are (tile, section, batch tile). Form mamba2: a section is a head, a tile a run of its head dims, a
/// batch tile one sequence. Form mamba1: a section is a group, a tile a run of its channels, and a batch tile
/// as many sequences as a thread holds rows: A of a channel is loaded once for all of them.
struct StepPlan {
  RowShape shape;
  int lanes_log2;    ///< lanes that share a row
  int rows;          ///< that a thread holds, at once but with tensor cores
  int turns;         ///< as many sequences as it has rows that a thread of form mamba1 takes, one token
  int warps;         ///< per block
  int stage_tokens;  ///< whose inputs are in shared memory at once
  std::int64_t tiles, sections, batch_tiles;

  SSMBENCH_HD constexpr int lanes() const { return 1 << lanes_log2; }
  /// Neighbouring rows that a warp holds by one vector of each lane.
  SSMBENCH_HD constexpr int rows_per_pass() const { return kWarpThreads >> lanes_log2; }
  constexpr int threads() const { return warps * kWarpThreads; }
  /// Bytes of shared memory that the inputs of one token take. Form mamba2: B and C; Δ·x, x and gate of each
  /// row; decay and destination. Form mamba1, for each sequence of a batch tile: B and C; Δ, Δ·x, x and gate
  /// of each channel; destination.
  constexpr int token_bytes(int dstate, bool rate_per_state) const {
    const int tile = warps * rows_per_pass();
    return 4 * (rate_per_state ? rows * (2 * dstate + 4 * tile + 1) : 2 * dstate + 3 * rows * tile + 2);
  }
  constexpr int stage_bytes(int dstate, bool rate_per_state) const {
    return stage_tokens * token_bytes(dstate, rate_per_state);
  }
};

/// First state of a lane's vector `i` of a row.
SSMBENCH_HD constexpr int state_of(int lane, int lanes, int i, int vector_states) {
  return (lane + i * lanes) * vector_states;
}

namespace step_detail {

/// The shape and the lanes of a row.
constexpr StepPlan plan_row(int dstate, int state_bytes) {
  const auto n = static_cast<unsigned>(dstate);
  const auto per_vector = static_cast<unsigned>(16 / state_bytes);
  const unsigned per_word = per_vector / 4;
  StepPlan plan{};
  plan.shape = n % per_vector == 0
                   ? (n / per_vector <= kWarpThreads ? RowShape::one_vector : RowShape::two_vectors)
               : n % per_word == 0 ? RowShape::words
                                   : RowShape::scalars;
  const auto words = static_cast<unsigned>(vectors_per_row(RowShape::words, state_bytes));
  const unsigned lanes = plan.shape == RowShape::words     ? (n / per_word + words - 1) / words
                         : plan.shape == RowShape::scalars ? n
                                                           : n / per_vector;
  plan.lanes_log2 = std::countr_zero(std::bit_ceil(std::min(lanes, unsigned{kWarpThreads})));
  return plan;
}

/// As many as fit in shared memory, which every block has 48 KB of; 16 leave room for several blocks.
constexpr int stage_of(std::int64_t tokens, int token_bytes) {
  const std::int64_t most = std::clamp<std::int64_t>(kDefaultSharedBytes / token_bytes, 1, 16);
  return static_cast<int>(std::min(tokens, most));
}

}  // namespace step_detail

/// batch × heads × headdim rows of dstate ≤ 256 states, form mamba2. Each row of a thread has a lane that
/// owns it, so that it holds no more rows than lanes share one.
constexpr StepPlan plan_heads(std::int64_t batch, std::int64_t heads, std::int64_t headdim, int dstate,
                              int state_bytes, std::int64_t tokens) {
  StepPlan plan = step_detail::plan_row(dstate, state_bytes);
  plan.rows = most_rows(plan.shape, state_bytes, tokens > 1);
  if (plan.rows > plan.lanes()) plan.rows = tokens > 1 || plan.shape == RowShape::words ? 1 : plan.lanes();
  const auto warps = [&] { return ceil_div(headdim, std::int64_t{plan.rows} * plan.rows_per_pass()); };
  if (warps() * heads * batch < kStepManyWarps) plan.rows = 1;
  const std::int64_t most = tokens > 1 ? kStepWarps : kStepHeadWarps;
  plan.warps = static_cast<int>(std::min(warps(), most));
  plan.tiles = ceil_div(warps(), plan.warps);
  plan.sections = heads;
  plan.batch_tiles = batch;
  plan.stage_tokens = step_detail::stage_of(tokens, plan.token_bytes(dstate, false));
  return plan;
}

/// batch rows of each of groups × channels, form mamba1.
constexpr StepPlan plan_channels(std::int64_t batch, std::int64_t groups, std::int64_t channels, int dstate,
                                 int state_bytes, std::int64_t tokens) {
  StepPlan plan = step_detail::plan_row(dstate, state_bytes);
  plan.sections = groups;
  const std::int64_t warps = ceil_div(channels, plan.rows_per_pass());
  plan.warps = static_cast<int>(std::min<std::int64_t>(warps, kStepWarps));
  plan.tiles = ceil_div(warps, plan.warps);
  plan.rows = plan.shape == RowShape::one_vector ? std::min(kStepSequences, plan.lanes()) : 1;
  if (warps * groups * ceil_div(batch, plan.rows) < kStepManyWarps) plan.rows = 1;
  const std::int64_t blocks = plan.tiles * groups * ceil_div(batch, plan.rows);
  const std::int64_t most = tokens > 1 ? 1 : state_bytes == 4 ? kStepWideTurns : kStepNarrowTurns;
  plan.turns = static_cast<int>(
      std::clamp<std::int64_t>(blocks / (kStepChannelBlocks * h200::kMultiprocessors), 1, most));
  plan.batch_tiles = ceil_div(batch, std::int64_t{plan.rows} * plan.turns);
  plan.stage_tokens = step_detail::stage_of(tokens, plan.token_bytes(dstate, true));
  return plan;
}

/// Many channels of 16 states, form mamba1: blocks have kTileChannels channels of a group, and a warp takes
/// one sequence after the other.
constexpr StepPlan plan_channel_tiles(std::int64_t batch, std::int64_t groups, std::int64_t channels,
                                      std::int64_t tokens) {
  StepPlan plan{};
  plan.shape = RowShape::one_vector;
  plan.rows = kStepWarps;  // sequences of a block at once
  plan.warps = kStepWarps;
  plan.tiles = channels / kTileChannels;
  plan.sections = groups;
  const std::int64_t blocks = plan.tiles * groups * ceil_div(batch, std::int64_t{kStepWarps});
  const std::int64_t at_once = tokens > 1 ? kTokenTileBlocks : kChannelTileBlocks;
  const std::int64_t turns = ceil_div(blocks, at_once * h200::kMultiprocessors);
  plan.turns = static_cast<int>(turns > kChannelTileTurns ? kManyChannelTileTurns : turns);
  plan.batch_tiles = ceil_div(batch, std::int64_t{kStepWarps} * plan.turns);
  return plan;
}
constexpr bool has_channel_tiles(std::int64_t batch, std::int64_t groups, std::int64_t channels,
                                 std::int64_t dstate) {
  return dstate == kTileStates && channels % kTileChannels == 0 &&
         channels / kTileChannels * groups * ceil_div(batch, std::int64_t{kStepWarps}) >=
             h200::kMultiprocessors;
}

/// Tokens by tensor cores: whether heads have them, whose rows lanes take by two.
constexpr bool has_products(std::int64_t headdim, std::int64_t dstate, std::int64_t tokens) {
  return headdim % 2 == 0 && (dstate == 64 || dstate == 128) && tokens <= kProductTokens;
}
/// The same of selective_state_update, where x is brought by 16 bytes; of 256 states, where no row has to be
/// in registers for its scale.
constexpr bool has_products(std::int64_t headdim, std::int64_t dstate, std::int64_t tokens, DType state) {
  const bool is_wide = dstate == 256 && (state == DType::f32 || state == DType::f16 || state == DType::bf16);
  return headdim % 8 == 0 && has_products(headdim, is_wide ? 128 : dstate, tokens);
}
/// Tiles of kProductRows rows that a warp takes, of a head: what it knows of the head serves all of them. As
/// many as give every resident warp a run, and runs of the same length.
constexpr int run_of_tiles(std::int64_t batch, std::int64_t heads, std::int64_t headdim,
                           std::int64_t warps_of_multiprocessor, std::int64_t longest) {
  const std::int64_t warps = warps_of_multiprocessor * h200::kMultiprocessors;
  const std::int64_t tiles = ceil_div(headdim, std::int64_t{kProductRows});
  const std::int64_t most = std::min({ceil_div(tiles * heads * batch, warps), tiles, longest});
  return static_cast<int>(ceil_div(tiles, ceil_div(tiles, most)));
}
constexpr int product_run(std::int64_t batch, std::int64_t heads, std::int64_t headdim, int dstate,
                          DType state) {
  return run_of_tiles(batch, heads, headdim, std::int64_t{product_blocks(state, dstate)} * kStepHeadWarps,
                      kProductRun);
}
constexpr StepPlan plan_products(std::int64_t batch, std::int64_t heads, std::int64_t headdim, int run,
                                 int most_warps) {
  StepPlan plan{};
  plan.shape = RowShape::one_vector;
  plan.lanes_log2 = 2;
  plan.rows = 2 * run;
  const std::int64_t warps = ceil_div(headdim, std::int64_t{kProductRows} * run);
  plan.warps = static_cast<int>(std::min<std::int64_t>(warps, most_warps));
  plan.tiles = ceil_div(warps, plan.warps);
  plan.sections = heads;
  plan.batch_tiles = batch;
  return plan;
}
/// Words of a token's x that a warp has in shared memory, and of z: two rows each. Beside states of 8 bits
/// there is room for some more, so that lanes of different tokens find theirs in different banks.
SSMBENCH_HD constexpr int product_token_words(int run, int state_bytes) {
  return run * kProductRows / 2 + (state_bytes == 1 ? 4 : 0);
}
/// Bytes of shared memory of a warp: stages of states, and B and C, eight tokens each; and what its rows
/// have, x and z of each token and a scale.
SSMBENCH_HD constexpr int product_state_bytes(int dstate, int state_bytes, DType state) {
  const int projections = stages_projections(state) ? 2 * kProductTokens * dstate * 2 : 0;
  return kProductStages * kProductRows * dstate * state_bytes + projections;
}
SSMBENCH_HD constexpr int product_row_bytes(int run, int state_bytes, int tokens) {
  return 4 * (2 * tokens * product_token_words(run, state_bytes) + run * kProductRows);
}
/// All of a warp, and the most warps of a block that have it.
constexpr int product_warp_bytes(int run, int dstate, int state_bytes, DType state, int tokens) {
  return product_state_bytes(dstate, state_bytes, state) + product_row_bytes(run, state_bytes, tokens);
}
constexpr int product_warps(int warp_bytes) {
  return std::min(kStepHeadWarps, kDefaultSharedBytes / warp_bytes);
}

/// Quantized states, batch rows of each of heads × headdim. With several rows a thread blocks are those of
/// plan_heads; they take one token of form mamba2, `one_step_of_heads`. With one row tiles are runs of all
/// rows of a sequence, form mamba1 having headdim 1.
constexpr StepPlan plan_quantized(std::int64_t batch, std::int64_t heads, std::int64_t headdim, int dstate,
                                  int state_bytes, bool one_step_of_heads) {
  StepPlan plan = step_detail::plan_row(dstate, state_bytes);
  plan.batch_tiles = batch;
  plan.rows = plan.lanes() >= kStepQuantizedRows ? kStepQuantizedRows : kStepFewQuantizedRows;
  const std::int64_t warps = ceil_div(headdim, std::int64_t{plan.rows} * plan.rows_per_pass());
  if (one_step_of_heads && plan.shape == RowShape::one_vector && plan.lanes() >= plan.rows &&
      warps * heads * batch >= kStepManyWarps) {
    plan.warps = static_cast<int>(std::min<std::int64_t>(warps, kStepHeadWarps));
    if (state_bytes == 1 && warps % kStepHeadWarps != 0) plan.warps = 1;  // none without rows
    plan.tiles = ceil_div(warps, plan.warps);
    plan.sections = heads;
    return plan;
  }
  const std::int64_t all_warps = ceil_div(heads * headdim, plan.rows_per_pass());
  plan.rows = 1;
  plan.warps = static_cast<int>(std::min<std::int64_t>(all_warps, kStepWarps));
  plan.tiles = ceil_div(all_warps, plan.warps);
  plan.sections = 1;
  return plan;
}

/// One token of form mamba2, states of 8 bits beside sequences in bf16 (coded_heads.cuh): plan_quantized with
/// several rows a thread, all of them there or none. i8 rounded to nearest is faster without.
constexpr bool has_coded_heads(const StepPlan& quantized, std::int64_t headdim, std::int64_t dstate,
                               DType state, bool is_stochastic) {
  return (state == DType::e4m3 || (state == DType::i8 && is_stochastic)) && (dstate == 64 || dstate == 128) &&
         quantized.rows > 1 && headdim % quantized.rows == 0;
}
/// Heads of a group that a block takes one after the other: as many as divide a group, and leave blocks
/// enough.
constexpr int coded_heads_run(const StepPlan& quantized, std::int64_t heads_per_group, bool is_stochastic) {
  if (!is_stochastic) return 1;
  const std::int64_t blocks = quantized.tiles * quantized.sections * quantized.batch_tiles;
  constexpr std::int64_t kLeast = std::int64_t{kCodedHeadsBlocks} * h200::kMultiprocessors;
  int run = kCodedHeadsRun;
  while (run > 1 && (heads_per_group % run != 0 || blocks < run * kLeast)) --run;
  return run;
}

}  // namespace ssmbench
