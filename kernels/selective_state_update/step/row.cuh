#pragma once

// What a lane of cuda-step holds of a row of states, and sums over the lanes of rows.

#include "kernels/common/activations.h"
#include "kernels/common/io_types.cuh"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_state_update/args.h"
#include "kernels/selective_state_update/step/map.h"

namespace ssmbench::step {

/// `kCount` neighbouring elements of a tensor, by one access of at most 16 bytes. As words and not as
/// elements: the compiler would take elements apart, and so wait for them, as soon as they are loaded and not
/// where they are used.
template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Packed {
  static constexpr int kWords = kCount * sizeof(T) / 4;
  std::uint32_t words[kWords];

  /// By an instruction that is named.
  __device__ void write(T* to) const {
    static_assert(kWords == 1 || kWords == 2 || kWords == 4);
    if constexpr (kWords == 4)
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words[0]), "r"(words[1]),
                   "r"(words[2]), "r"(words[3])
                   : "memory");
    else if constexpr (kWords == 2)
      asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(words[0]), "r"(words[1]) : "memory");
    else
      asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(words[0]) : "memory");
  }
  __device__ void unpack(float* to) const {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (sizeof(T) == 4) {
        to[i] = __uint_as_float(words[i]);
      } else {
        const float2 two = unpack_pair<T>(words[i]);
        to[2 * i] = two.x;
        to[2 * i + 1] = two.y;
      }
    }
  }
  __device__ void pack(const float* from) {
#pragma unroll
    for (int i = 0; i < kWords; ++i)
      if constexpr (sizeof(T) == 4)
        words[i] = __float_as_uint(from[i]);
      else
        words[i] = pack_pair<T>(from[2 * i], from[2 * i + 1]);
  }
};
template <class T>
struct Packed<T, 1> {
  T element;

  __device__ void write(T* to) const { *to = element; }
  __device__ void unpack(float* to) const { *to = to_float(element); }
  __device__ void pack(const float* from) { element = from_float<T>(*from); }
};

/// Row `i` of those that lie `bytes` apart from `first` on: by one multiply-add.
template <class T>
__device__ T* row_at(T* first, int i, unsigned bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(first) +
                              std::uint64_t{static_cast<unsigned>(i)} * bytes);
}

/// How the lanes that share a row divide it.
template <class State, RowShape kShape>
struct Lanes {
  static constexpr int kWidth = vector_states(kShape, sizeof(State));
  static constexpr int kVectors = vectors_per_row(kShape, sizeof(State));
  static constexpr int kStates = kWidth * kVectors;
  int lane, lanes, dstate;

  __device__ int first(int vector) const { return state_of(lane, lanes, vector, kWidth); }
  __device__ bool has(int vector) const { return first(vector) < dstate; }
};

/// A lane's part of a row of T that is divided like states are; zeros past its end.
template <class T, class Division>
struct RowPart {
  using Vector = Packed<T, Division::kWidth>;
  static constexpr int kMost = 16 / sizeof(T);  // elements of an access
  static constexpr int kPieces = Division::kWidth > kMost ? Division::kWidth / kMost : 1;
  using Piece = Packed<T, Division::kWidth / kPieces>;
  Piece pieces[Division::kVectors][kPieces];

  /// `row`: where it begins; it is not read where `is_there` is false.
  __device__ void load(const T* row, const Division& division, bool is_there) {
#pragma unroll
    for (int v = 0; v < Division::kVectors; ++v)
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        pieces[v][i] = Piece{};
        if (is_there && division.has(v))
          pieces[v][i] = *reinterpret_cast<const Piece*>(row + division.first(v) + i * kMost);
      }
  }
  /// The one vector of a row that a lane has.
  __device__ void load_vector(const T* from) {
    static_assert(Division::kVectors == 1);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) pieces[0][i] = *reinterpret_cast<const Piece*>(from + i * kMost);
  }
  __device__ void store(T* row, const Division& division) const {
#pragma unroll
    for (int v = 0; v < Division::kVectors; ++v)
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
        if (division.has(v)) *reinterpret_cast<Piece*>(row + division.first(v) + i * kMost) = pieces[v][i];
  }
  /// The same where the compiler would take vectors apart.
  __device__ void store_whole(T* row, const Division& division) const {
#pragma unroll
    for (int v = 0; v < Division::kVectors; ++v)
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
        if (division.has(v)) pieces[v][i].write(row + division.first(v) + i * kMost);
  }
  __device__ void unpack(float (&to)[Division::kStates]) const {
#pragma unroll
    for (int v = 0; v < Division::kVectors; ++v)
#pragma unroll
      for (int i = 0; i < kPieces; ++i) pieces[v][i].unpack(to + v * Division::kWidth + i * kMost);
  }
  __device__ void pack(const float (&from)[Division::kStates]) {
#pragma unroll
    for (int v = 0; v < Division::kVectors; ++v)
#pragma unroll
      for (int i = 0; i < kPieces; ++i) pieces[v][i].pack(from + v * Division::kWidth + i * kMost);
  }
};

/// h ← decay·h + Δx·B, and Σ C·h over the lane's states.
template <int kStates>
__device__ float advance(float (&h)[kStates], float decay, float delta_x, const float (&B)[kStates],
                         const float (&C)[kStates]) {
  float y = 0.0F;
#pragma unroll
  for (int s = 0; s < kStates; ++s) {
    h[s] = decay * h[s] + delta_x * B[s];
    y += C[s] * h[s];
  }
  return y;
}
/// With a decay for each state: 2^(Δ·rate).
template <int kStates>
__device__ float advance(float (&h)[kStates], const float (&rate)[kStates], float delta, float delta_x,
                         const float (&B)[kStates], const float (&C)[kStates]) {
  float y = 0.0F;
#pragma unroll
  for (int s = 0; s < kStates; ++s) {
    h[s] = exp2_approximate(delta * rate[s]) * h[s] + delta_x * B[s];
    y += C[s] * h[s];
  }
  return y;
}

/// The sum over the lanes of a row, to all of them.
__device__ inline float reduce_row(float y, int lanes) {
  for (int distance = 1; distance < lanes; distance *= 2) y += __shfl_xor_sync(0xFFFFFFFFU, y, distance);
  return y;
}

/// Sums over the lanes of a row, for kRows ≤ lanes rows at once, or what `add` makes of two. Returns the sum
/// of row r to every lane whose number is r modulo kRows: lanes that differ in their last bits exchange the
/// rows that the other one keeps, so that each round halves what is left to add.
template <int kRows, class Add>
__device__ float reduce_rows(const float (&y)[kRows], int lane, int lanes, const Add& add) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  float sums[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) sums[r] = y[r];
#pragma unroll
  for (int distance = 1; distance < kRows; distance *= 2) {
    const bool odd = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < kRows / (2 * distance); ++i) {
      const float keep = odd ? sums[2 * i + 1] : sums[2 * i];
      const float give = odd ? sums[2 * i] : sums[2 * i + 1];
      sums[i] = add(keep, __shfl_xor_sync(kAll, give, distance));
    }
  }
#pragma unroll
  for (int distance = kRows; distance < kWarpThreads; distance *= 2)
    if (distance < lanes) sums[0] = add(sums[0], __shfl_xor_sync(kAll, sums[0], distance));
  return sums[0];
}
template <int kRows>
__device__ float reduce_rows(const float (&y)[kRows], int lane, int lanes) {
  return reduce_rows<kRows>(y, lane, lanes, [](float a, float b) { return a + b; });
}

/// Calls `call` with a value of the device type of an io dtype.
template <class Call>
__device__ void with_device_io(DType io, const Call& call) {
  if (io == DType::bf16)
    call(__nv_bfloat16());
  else if (io == DType::f16)
    call(__half());
  else
    call(float());
}

/// dt as it is stored, of the io dtype or f32.
template <class Io>
struct StoredDt {
  Io io{};
  float f32 = 0.0F;

  StoredDt() = default;
  template <class Args>
  __device__ StoredDt(const Args& args, std::int64_t at) {
    if (args.dt_is_f32)
      f32 = static_cast<const float*>(args.dt)[at];
    else
      io = static_cast<const Io*>(args.dt)[at];
  }
  /// Δ. Softplus from one exponential: the logarithm of 1 + e^x is what a step takes its time for otherwise.
  template <class Args>
  __device__ float step_size(const Args& args, float dt_bias) const {
    const float delta = (args.dt_is_f32 ? f32 : to_float(io)) + dt_bias;
    return args.dt_softplus ? fast_softplus(delta) : delta;
  }
};

/// Slot that row b of the batch starts from, −1 for padding; and that it is stored into after token t.
__device__ inline std::int64_t source_of(const StateUpdateArgs& args, std::int64_t b) {
  return args.source == nullptr ? b : std::int64_t{args.source[b]};
}
__device__ inline std::int64_t destination_of(const StateUpdateArgs& args, std::int64_t b, std::int64_t t) {
  if (args.destination != nullptr) return args.destination[b * args.tokens + t];
  return t == args.tokens - 1 ? b : -1;
}

/// The rows of a thread of form mamba2 with one token: kRows of a head, a pass apart or neighbours, and the one
/// that it owns.
template <class Division, int kRows, bool kAreNeighbours = false>
struct HeadRows {
  int headdim, head, pass, first, own_row;
  Division division;
  bool owns;
  std::int64_t b;
  int source, destination;  ///< slots; widened where they are used, else other loads would wait for them
  std::int64_t of_head;     ///< among those of all sequences
  std::int64_t own;         ///< of x, z and out

  __device__ HeadRows(const StateUpdateArgs& args, const StepPlan& plan)
      : headdim(static_cast<int>(args.headdim)),
        head(static_cast<int>(blockIdx.y)),
        pass(kAreNeighbours ? 1 : plan.rows_per_pass()) {
    const int lanes = plan.lanes();
    division = {static_cast<int>(threadIdx.x) & (lanes - 1), lanes, static_cast<int>(args.dstate)};
    const int warp = static_cast<int>(blockIdx.x * plan.warps + threadIdx.x / kWarpThreads);
    const int of_pass = static_cast<int>(threadIdx.x % kWarpThreads) >> plan.lanes_log2;
    first = kAreNeighbours ? (warp * plan.rows_per_pass() + of_pass) * kRows : warp * kRows * pass + of_pass;
    b = blockIdx.z;
    source = args.source == nullptr ? static_cast<int>(b) : args.source[b];
    destination = args.destination == nullptr ? static_cast<int>(b) : args.destination[b];
    of_head = b * args.heads + head;
    own_row = first + division.lane * pass;
    owns = division.lane < kRows && own_row < headdim;
    own = of_head * headdim + own_row;
  }
  /// Whether row `r` of the thread is there.
  __device__ bool has(int r) const { return first + r * pass < headdim; }
  /// Row `r`, or else another one of the head: loads need no predicates, of which there are few.
  __device__ int row_to_load(int r) const { return min(first + r * pass, headdim - 1); }
  /// Row `row` of the head among those of all slots.
  __device__ std::int64_t of_slot(const StateUpdateArgs& args, std::int64_t slot, int row) const {
    return slot * (args.heads * headdim) + (static_cast<std::int64_t>(head) * headdim + row);
  }
};

}  // namespace ssmbench::step
