#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/common/workspace.h"

// States that go from one thread block to another, in the workspace.
//
// Where there are few heads, a scan over time is cut into parts that run at once. First each part but the last
// is scanned for the state that it would leave if none entered it (the first one: its real state), and for
// its decay. With those,
//
//   state after part i = decay_i · (state after part i − 1) + what part i left
//
// is computed in place (launch_join_parts). Then all parts are scanned, with the states that enter them.

namespace ssmbench {

/// The decay of a part in which a packed sequence starts: nothing of the parts before enters, not even NaN.
/// Other decays are never -0.
inline constexpr float kStartsAnew = -0.0F;

/// States of 64 rows by N, padded, as 128 threads have them in registers: [block][row tile][register][thread].
struct HandedStates {
  float* states;    ///< per block: those that leave its last segment
  float* decays;    ///< [block][row tile]: of a part
  unsigned* flags;  ///< per block: 1 when its states are there, where another one waits for them
};

/// Where they lie in the workspace, in bytes.
struct HandedLayout {
  std::size_t states, decays, flags, bytes;
};
constexpr HandedLayout handed_layout(std::int64_t blocks, std::int64_t tiles, std::int64_t tile_elements) {
  WorkspaceLayout layout;
  HandedLayout at{};
  at.states = layout.take(blocks * tiles * tile_elements, sizeof(float));
  at.decays = layout.take(blocks * tiles, sizeof(float));
  at.flags = layout.take(blocks, sizeof(unsigned));
  at.bytes = layout.bytes();
  return at;
}
inline HandedStates handed_states(const HandedLayout& at, void* workspace) {
  auto* const base = static_cast<unsigned char*>(workspace);
  return {reinterpret_cast<float*>(base + at.states), reinterpret_cast<float*>(base + at.decays),
          reinterpret_cast<unsigned*>(base + at.flags)};
}

/// What is scanned in parts.
struct Parts {
  std::int64_t sequences;
  int parts;    ///< of a sequence, a block each
  int tiles;    ///< row tiles of a block
  int vectors;  ///< of 16 bytes, of a row tile
  /// (sequences + 1,): the first block of each sequence, if they have up to `parts` parts; or null.
  const std::int32_t* firsts = nullptr;
};

/// The states after all parts but the last. The kernel begins early (common/hopper/dependent_launch.cuh). Throws
/// DeviceError when it cannot be launched.
void launch_join_parts(const HandedStates& handed, const Parts& of, cudaStream_t stream);

}  // namespace ssmbench
