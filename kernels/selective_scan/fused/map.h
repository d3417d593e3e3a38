#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "kernels/common/index_math.h"

// Which thread of cuda-fused's fast kernel (fused_rows_kernel.cuh) does what, and where its tiles lie. Host
// and device, so that the CPU tests cover it.

namespace ssmbench {

/// How channels are spread: each on `lanes` threads, of which each has `states` of its states.
struct RowsShape {
  int states;  ///< 2 or 4
  int lanes;   ///< 4 or 8
  int teams;   ///< the most of a block, 1, 2 or 4

  friend bool operator==(const RowsShape&, const RowsShape&) = default;
};

inline constexpr int kRowsScanners = 128;  ///< threads of a team that scan
inline constexpr int kRowsMaxStates = 32;

/// The spread of `dstate` states in a problem of `rows` = batch · dim channels; nothing over kRowsMaxStates.
/// 4 states a thread take the fewest instructions, but while there are not enough threads to keep an H200's
/// 132 multiprocessors busy, 2 states on twice the threads are faster: up to one block of 16 channels for
/// each. In f32 blocks of four teams leave room for two tiles ahead, which is not enough where fewer are on a
/// multiprocessor: up to two teams of 32 channels for each, blocks of two have it for three, and need not add
/// parts of y in pairs. Sequences of two tiles leave nothing to copy ahead: four blocks of one team, for
/// which there is room then, begin sooner. In 16 bits these two would bring nothing.
constexpr std::optional<RowsShape> rows_shape(std::int64_t rows, std::int64_t dstate, std::int64_t seqlen,
                                              std::size_t element_bytes) {
  if (dstate > kRowsMaxStates) return std::nullopt;
  if (dstate > 16) return RowsShape{4, 8, 1};
  if (rows <= 132 * 16) return RowsShape{2, 8, 1};
  if (element_bytes == 2) return RowsShape{4, 4, 4};
  if (rows <= 132 * 64) return RowsShape{4, 4, 2};
  return RowsShape{4, 4, seqlen <= 2 * 32 ? 1 : 4};
}

/// Calls `call` with the numbers of a shape of these elements as std::integral_constant, and returns what it
/// returns.
template <std::size_t element_bytes, class Call>
auto with_rows_shape(RowsShape shape, const Call& call) {
  using std::integral_constant;
  const integral_constant<int, 1> one;
  const integral_constant<int, 2> two;
  const integral_constant<int, 4> four;
  const integral_constant<int, 8> eight;
  if (shape.states == 2) return call(two, eight, one);
  if (shape.lanes == 8) return call(four, eight, one);
  if constexpr (element_bytes == 4) {
    if (shape.teams == 1) return call(four, four, one);
    if (shape.teams == 2) return call(four, four, two);
  }
  return call(four, four, four);
}

/// Teams of a block, of at most `most`, for `groups` times `teams_of_group` teams: `usual`, unless another
/// number saves the busiest of an H200's 132 multiprocessors, on which blocks end together, a tenth of its
/// teams.
constexpr int rows_teams(std::int64_t groups, std::int64_t teams_of_group, int usual, int most) {
  const auto of_busiest = [&](int teams) {
    return ceil_div(groups * ceil_div(teams_of_group, teams), 132) * teams;
  };
  int best = usual;
  for (int teams = most; teams >= 1; --teams)
    if (10 * of_busiest(teams) <= 9 * of_busiest(best)) best = teams;
  return best;
}

/// Sizes and index maps of a kernel with kStates states of a channel on each of kLanes threads. A tile has 8
/// steps times the lanes of a channel, so that a helper stages 8 elements of each sequence.
template <int states_of_thread, int lanes_of_channel, int most_teams>
struct RowsMap {
  static constexpr int kStates = states_of_thread;
  static constexpr int kLanes = lanes_of_channel;
  static constexpr int kHelpers = 128;  ///< of a team
  static constexpr int kThreads = kRowsScanners + kHelpers;
  static constexpr int kMostTeams = most_teams;  ///< of a block
  /// Such blocks on a multiprocessor.
  static constexpr int kBlocks = kLanes == 4 && kMostTeams == 1 ? 4 : kStates == 4 && kLanes == 8 ? 2 : 1;
  static constexpr int kChannels = kRowsScanners / kLanes;
  static constexpr int kSteps = 8 * kLanes;
  static constexpr int kPaddedStates = kStates * kLanes;
  /// Sums of a channel's states that the scan leaves to be added, each of one or two lanes.
  static constexpr int kParts = kStates == 2 || kMostTeams == 2 ? kLanes : kLanes / 2;

  /// A scanner's channel in its team and its lane. The lowest bits of the lane in a warp are one of
  /// the channel and one of the state: shared memory serves 16-byte loads of 16 threads at once where threads
  /// that differ in one of these two bits only take the same address.
  SSMBENCH_HD static constexpr int channel_of(int thread) {
    constexpr int kChannelsOfWarp = 32 / kLanes;
    return (thread >> 5) * kChannelsOfWarp + (thread & 1) + (((thread >> 2) << 1) & (kChannelsOfWarp - 1));
  }
  SSMBENCH_HD static constexpr int lane_of(int thread) {
    return ((thread >> 1) & 1) + ((thread & 31) / (64 / kLanes) << 1);
  }
  /// Distance in the warp of threads whose lanes differ in bit 0.
  static constexpr int kFirstLaneBit = 2;

  // Shared memory, in floats. 8 steps of a channel are 16 floats: first {Δ, Δ·u} of each, then two parts of
  // y, of 8 steps each, that the scan leaves in their place. Other parts lie in planes of their own. The pads
  // put the 16-byte accesses of 8 neighbouring channels, those of 8 channels apart, and those of 8
  // threads along time into different banks.
  SSMBENCH_HD static constexpr int step_at(int channel, int step) {
    return channel * kPitch + (channel >> 3) * 8 + within_row(step);
  }
  SSMBENCH_HD static constexpr int part_at(int part, int channel, int step) {
    return part % kPlanes * kPlaneFloats + step_at(channel, step & ~7) + part / kPlanes * 8 + (step & 7);
  }
  SSMBENCH_HD static constexpr int within_row(int step) {
    return 2 * step + (step >> 4) * 8 + (step >> 5) * 4;
  }
  static constexpr int kPitch =
      (2 * kSteps + ((kSteps - 1) >> 4) * 8 + ((kSteps - 1) >> 5) * 4) / 4 / 2 * 8 + 4;
  static constexpr int kPlaneFloats = (kChannels * kPitch + (kChannels >> 3) * 8 + 15) / 32 * 32 + 16;
  static constexpr int kPlanes = kParts / 2;
  static constexpr int kSequenceFloats = kPlanes * kPlaneFloats;

  /// B and C: what a thread reads at once are 16 bytes, its states in 4/kStates steps.
  static constexpr int kStepsAtOnce = 4 / kStates;
  SSMBENCH_HD static constexpr int projection_at(int step, int state) {
    return ((step / kStepsAtOnce) * kLanes + state / kStates) * 4 + (step % kStepsAtOnce) * kStates +
           state % kStates + (step >> 3) * 16;
  }
  static constexpr int kProjectionFloats = kSteps * kPaddedStates + (kSteps >> 3) * 16;
};

/// A tile of a tensor as the tensor memory accelerator leaves it. A row of it has `row_bytes`; those of each
/// copy, at most 128, lie together. Their 16-byte pieces are permuted by address bits 7 and up
/// (CU_TENSOR_MAP_SWIZZLE_*), so that the same piece of neighbouring rows is in different banks.
template <int rows, int row_bytes>
struct RawTile {
  static constexpr int kRows = rows;
  static constexpr int kCopyRow = row_bytes < 128 ? row_bytes : 128;
  static constexpr int kCopies = row_bytes / kCopyRow;
  static constexpr int kCopyBytes = rows * kCopyRow;
  static constexpr int kBytes = rows * row_bytes;

  SSMBENCH_HD static constexpr int at(int row, int byte) {
    const int offset = byte / kCopyRow * kCopyBytes + row * kCopyRow + byte % kCopyRow;
    return offset ^ (offset >> 3 & (kCopyRow - 16));
  }
};

/// A block's shared memory, in bytes: what its teams share, and then a region of each team. In both lie first
/// the raw tiles, in rings of places for those of each tensor, and then two tiles in f32, one of which is
/// scanned while the other is finished and staged. Raw tiles are copied kAhead tiles before they are staged,
/// and z's two tiles later, since u and z are needed once more when a tile is finished: by then the next but
/// one is staged.
template <class Map, bool kAlongTime, int element_bytes>
struct RowsMemory {
  static constexpr int kElementBytes = element_bytes;
  using Sequence = RawTile<kAlongTime ? Map::kChannels : Map::kSteps,
                           (kAlongTime ? Map::kSteps : Map::kChannels) * element_bytes>;
  using Projection = RawTile<kAlongTime ? Map::kPaddedStates : Map::kSteps,
                             (kAlongTime ? Map::kSteps : Map::kPaddedStates) * element_bytes>;

  /// In f32: the two tiles of {Δ, Δ·u} and of parts of y, bias and D of a team; those of B and C.
  static constexpr int kTeamFloats = 2 * (Map::kSequenceFloats + Map::kChannels);
  static constexpr int kCommonFloats = 4 * Map::kProjectionFloats;

  static constexpr int team_bytes_with(int ahead) {
    return in_kilobytes((3 * ahead + 2) * Sequence::kBytes + kTeamFloats * 4);
  }
  /// With a barrier for each tile ahead.
  static constexpr int common_bytes_with(int ahead) {
    return in_kilobytes(2 * ahead * Projection::kBytes + kCommonFloats * 4 + ahead * 8);
  }
  /// Up to 3, where a multiprocessor's 228 KB have room for it in the largest of blocks.
  static constexpr bool fits(int ahead) {
    return common_bytes_with(ahead) + Map::kMostTeams * team_bytes_with(ahead) <=
           228 * 1024 / Map::kBlocks - 1024;
  }
  static constexpr int kAhead = fits(3) ? 3 : fits(2) ? 2 : 1;
  static constexpr int kTeamBytes = team_bytes_with(kAhead);
  static constexpr int kCommonBytes = common_bytes_with(kAhead);
  SSMBENCH_HD static constexpr int bytes(int teams) { return kCommonBytes + teams * kTeamBytes; }
  /// Teams of a block where nothing speaks against it: two blocks of two teams on a multiprocessor, of which
  /// one scans while the other waits at its barrier, or, where these do not fit, one of all.
  static constexpr int kUsualTeams = Map::kMostTeams > 2 && 2 * (bytes(2) + 1024) <= 228 * 1024
                                         ? 2
                                         : Map::kMostTeams;

  // Raw tiles, from where those of a team begin.
  static constexpr int kKeptU = kAhead + 2;
  SSMBENCH_HD static constexpr int u_at(unsigned tile) {
    return static_cast<int>(tile % kKeptU) * Sequence::kBytes;
  }
  SSMBENCH_HD static constexpr int z_at(unsigned tile) {
    return (kKeptU + static_cast<int>(tile % kAhead)) * Sequence::kBytes;
  }
  SSMBENCH_HD static constexpr int delta_at(unsigned tile) {
    return (kKeptU + kAhead + static_cast<int>(tile % kAhead)) * Sequence::kBytes;
  }
  static constexpr int kTeamRawBytes = (kKeptU + 2 * kAhead) * Sequence::kBytes;
  /// B, C: 0, 1. From where the common ones begin.
  SSMBENCH_HD static constexpr int projection_at(int which, unsigned tile) {
    return (2 * static_cast<int>(tile % kAhead) + which) * Projection::kBytes;
  }
  static constexpr int kCommonRawBytes = 2 * kAhead * Projection::kBytes;

 private:
  /// Copies are permuted by address: their places are multiples of 1 KB.
  static constexpr int in_kilobytes(int bytes) { return (bytes + 1023) / 1024 * 1024; }
};

/// Where a helper's octet of a tile of sequences lies: 8 elements along the axis that is contiguous in
/// memory. Where raw rows are two copies, of which the same pieces are in the same banks, 8 neighbouring
/// threads take one half of two rows.
template <class Map, bool kAlongTime, int element_bytes>
struct SequencePlace {
  SSMBENCH_HD explicit SequencePlace(int thread)
      : channel(kAlongTime ? channel_along(thread) : thread % kAcross * 8),
        step(kAlongTime ? octet_along(thread) * 8 : step_across(thread / kAcross)) {}

  int channel, step;

 private:
  static constexpr int kAcross = Map::kChannels / 8;  ///< octets of a step
  static constexpr bool kTwoCopies = Map::kLanes == 8 && Map::kSteps * element_bytes > 128;

  SSMBENCH_HD static constexpr int channel_along(int i) {
    return kTwoCopies ? (i >> 5 << 2) + (i >> 2 & 3) : i / Map::kLanes;
  }
  SSMBENCH_HD static constexpr int octet_along(int i) {
    return kTwoCopies ? (i & 3) + (i >> 2 & 4) : i % Map::kLanes;
  }

  /// Which of the steps it is of which 16 octets are stored at once: of 32 channels 4 neighbours, of 16
  /// channels 4 and the 4 that are 8 later.
  SSMBENCH_HD static constexpr int step_across(int i) {
    return kAcross == 2 ? (i & ~12) + ((i & 4) << 1) + ((i & 8) >> 1) : i;
  }
};

/// Where a helper's octets of a tile of B, of C lie: 8 steps of one state, or 8 states of one step. Of 16
/// states and 32 steps one half of the threads has one octet of B, the other one of C.
template <class Map, bool kAlongTime>
struct ProjectionPlace {
  static constexpr int kOctetsOfTile = Map::kPaddedStates * Map::kSteps / 8;
  static constexpr bool kHalves = kOctetsOfTile < Map::kHelpers;
  static constexpr int kThreads = kHalves ? kOctetsOfTile : Map::kHelpers;
  static constexpr int kProjections = kHalves ? 1 : 2;      ///< of which a thread has octets
  static constexpr int kOctets = kOctetsOfTile / kThreads;  ///< a thread's, of B and of C each
  static constexpr int kStepsApart = kThreads * 8 / Map::kPaddedStates;

  SSMBENCH_HD explicit ProjectionPlace(int thread)
      : state(kAlongTime ? thread % kThreads % Map::kPaddedStates : thread % (Map::kPaddedStates / 8) * 8),
        step(kAlongTime ? thread % kThreads / Map::kPaddedStates * 8
                        : thread % kThreads / (Map::kPaddedStates / 8)) {}

  int state, step;
};

}  // namespace ssmbench
