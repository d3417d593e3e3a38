#pragma once

// cuda-dense: a matrix A per channel. Sequential in time; lanes across states, one row of A on each.
//
//   warp     32/K rows (b, d), K = 8, 16 or 32 lanes each, the least power of two that holds dstate
//
//     lane          0          1      ...    K-1   |   K   ...
//     (b, d)        0          0              0    |   1   ...
//     h             h[0]       h[1]           h[K-1]
//     registers     A[0][*]    A[1][*]        A[K-1][*]
//
//   time     K steps at a time: lane i reads u and Δ = softplus(delta + bias) of step i, and writes its out
//            later; in between the steps run one after the other, B and C read as they come.
//
//   step     w = A·h + B·u, a product whose vector comes by shuffles, then h ← h + x with
//
//     bilinear   (I − ΔA/2)·x = Δ·w: elimination with partial pivoting. Rows stay where they are; a pivot
//                row is found by a maximum over lanes and comes to the others by shuffles, K²/2 of them in
//                all
//     foh        x = Δ·φ1(ΔA)·w by Taylor series on the vector, in parts of the step where ‖ΔA/parts‖ ≤ 1
//                (Al-Mohy & Higham, "Computing the Action of the Matrix Exponential" (2011), section 3): some
//                ten products of A and a vector per part, where the matrix e^(ΔA) would take ten of two
//                matrices. Where ‖ΔA‖ > 32 that is cheaper: x of a part as before, then doubled and doubled
//
//            In both h changes by an increment, so that a small Δ does not round away what it does to h.
//
// Registers: a row of A; for bilinear also of I − ΔA/2, 2·K and some 30; for foh of e^(τA) − I and its
// square, 3·K. No shared memory. How often a loop runs depends on Δ·A: a warp runs as often as any of its
// rows needs, and a row that is done keeps its values, so that no result depends on a neighbour.
//
// The io dtype is looked at in each load and store: beside a step these take no time.

#include <cmath>

#include "kernels/common/index_math.h"
#include "kernels/common/scalar_math.h"
#include "kernels/selective_scan/args.h"
#include "kernels/selective_scan/dense/map.h"
#include "kernels/selective_scan/io_dtype.cuh"

namespace ssmbench::dense {

constexpr int kDenseThreads = 128;
constexpr unsigned kWholeWarp = 0xFFFFFFFFU;

/// Lane's row of A·x, x one element per lane.
template <int K>
__device__ float row_product(const float (&A)[K], float x) {
  float sum = 0.0F;
#pragma unroll
  for (int j = 0; j < K; ++j) sum += A[j] * __shfl_sync(kWholeWarp, x, j, K);
  return sum;
}

template <int K>
__device__ float lane_sum(float x) {
#pragma unroll
  for (int distance = K / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(kWholeWarp, x, distance, K);
  return x;
}

template <int K>
__device__ float lane_max(float x) {
#pragma unroll
  for (int distance = K / 2; distance > 0; distance /= 2)
    x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, distance, K));
  return x;
}

/// The lane with the largest |x| among those not `used`: magnitudes compare as their bits do, and the lowest
/// of those bits give way to the lane.
template <int K>
__device__ int lane_of_largest(float x, bool used, int lane) {
  int key = used ? -1 : (__float_as_int(fabsf(x)) & ~(K - 1)) | lane;
#pragma unroll
  for (int distance = K / 2; distance > 0; distance /= 2)
    key = max(key, __shfl_xor_sync(kWholeWarp, key, distance, K));
  return key & (K - 1);
}

/// Element `lane` of the solution x of M·x = right; a row of M per lane, which it overwrites. n ≤ K
/// equations. A singular M gives values that are not finite.
template <int K>
__device__ float solve(float (&M)[K], float right, int lane, int n) {
  bool used = false;  // this lane's row has been a pivot row
  int owner = 0;      // lane k: which lane's row is pivot row k
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (k >= n) break;
    const int pivot_lane = lane_of_largest<K>(M[k], used, lane);
    if (lane == k) owner = pivot_lane;
    if (lane == pivot_lane) used = true;
    const float pivot = __shfl_sync(kWholeWarp, M[k], pivot_lane, K);
    const float factor = used ? 0.0F : M[k] / pivot;
#pragma unroll
    for (int j = k + 1; j < K; ++j) M[j] -= factor * __shfl_sync(kWholeWarp, M[j], pivot_lane, K);
    right -= factor * __shfl_sync(kWholeWarp, right, pivot_lane, K);
  }
  float x = 0.0F;
#pragma unroll
  for (int k = K - 1; k >= 0; --k) {
    if (k >= n) continue;
    const int pivot_lane = __shfl_sync(kWholeWarp, owner, k, K);
    const float solution = __shfl_sync(kWholeWarp, right / M[k], pivot_lane, K);
    if (lane == k) x = solution;
    right -= M[k] * solution;  // of rows that are done, and no longer read, too
  }
  return x;
}

/// sum ← sum + X·Y, a row of each matrix per lane.
template <int K>
__device__ void add_product(float (&sum)[K], const float (&X)[K], const float (&Y)[K]) {
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int j = 0; j < K; ++j) sum[j] += X[k] * __shfl_sync(kWholeWarp, Y[j], k, K);
}

/// Lane's row of e^{τA} − I, ‖τA‖ ≤ 1, by Horner's scheme.
template <int K>
__device__ void exponential_minus_1(float (&E)[K], const float (&A)[K], float tau, int lane) {
#pragma unroll
  for (int j = 0; j < K; ++j) E[j] = A[j] * (tau / kExponentialTerms) + (j == lane ? 1.0F : 0.0F);
#pragma unroll 1
  for (int k = kExponentialTerms - 1; k > 0; --k) {
    float sum[K] = {};
    add_product(sum, A, E);
    const float one = k > 1 ? 1.0F : 0.0F;
#pragma unroll
    for (int j = 0; j < K; ++j) E[j] = sum[j] * (tau / static_cast<float>(k)) + (j == lane ? one : 0.0F);
  }
}

/// From x = ∫₀^τ e^{sA}·w ds to the same up to 2^doublings·τ: with E = e^{τA} − I, x ← 2·x + E·x and E ← 2·E
/// + E². Without the identity a slow state keeps its digits.
template <int K>
__device__ float doubled(const float (&A)[K], float tau, int doublings, float x, int lane) {
  float E[K];
  exponential_minus_1(E, A, tau, lane);
#pragma unroll 1
  for (int k = 0; __any_sync(kWholeWarp, k < doublings); ++k) {
    const float added = row_product(E, x);
    if (k < doublings) x += x + added;
    float square[K];
#pragma unroll
    for (int j = 0; j < K; ++j) square[j] = 2.0F * E[j];
    add_product(square, E, E);
#pragma unroll
    for (int j = 0; j < K; ++j) E[j] = square[j];
  }
  return x;
}

/// h + Δ·φ1(ΔA)·(A·h + input), norm = ‖A‖∞.
template <int K>
__device__ float hold_step(const float (&A)[K], float norm, float delta, float h, float input, int lane) {
  const auto [parts, doublings] = plan_hold(fabsf(delta) * norm);
  const float tau = ldexpf(delta / static_cast<float>(parts), -doublings);
  const float theta = fminf(fabsf(tau) * norm, 1.0F);  // ends the series where nothing is finite
  float x = 0.0F;
  for (int part = 0; __any_sync(kWholeWarp, part < parts); ++part) {
    // Term k of the series is (τA)^(k-1)·τ·w/k!, its norm beside that of τ·w at most θ^(k-1)/k!.
    float term = tau * (row_product(A, h) + input);
    if (part < parts) x = term;
    float size = part < parts ? theta / 2.0F : 0.0F;
    for (int k = 2; __any_sync(kWholeWarp, size > kTaylorCutoff); ++k) {
      term = row_product(A, term) * (tau / static_cast<float>(k));
      if (size > kTaylorCutoff) x += term;
      size *= theta / static_cast<float>(k + 1);
    }
    // The others wait for their doublings.
    if (part < parts && doublings == 0) h += x;
  }
  if (__any_sync(kWholeWarp, doublings > 0)) {
    x = doubled(A, tau, doublings, x, lane);
    if (doublings > 0) h += x;
  }
  return h;
}

/// h + (I − ΔA/2)⁻¹·Δ·(A·h + input)
template <int K>
__device__ float bilinear_step(const float (&A)[K], float delta, float h, float input, int lane, int n) {
  float M[K];
#pragma unroll
  for (int j = 0; j < K; ++j) M[j] = (j == lane ? 1.0F : 0.0F) - 0.5F * delta * A[j];
  return h + solve<K>(M, delta * (row_product(A, h) + input), lane, n);
}

__device__ inline float element_at(const void* tensor, std::int64_t at, DType io) {
  return element_to_float(load_element(element_of(tensor, at, io), io), io);
}

/// One state's B or C along time.
struct Projection {
  const void* data;
  DType io;
  std::int64_t origin, time;
  bool variable, exists;

  __device__ Projection(const void* tensor, DType dtype, bool is_variable, const ProjectionStrides& s,
                        std::int64_t b, std::int64_t d, std::int64_t g, int n, bool state_exists)
      : data(tensor),
        io(dtype),
        origin(b * s.batch + g * s.group + d * s.channel + n * s.state),
        time(s.time),
        variable(is_variable),
        exists(state_exists) {}

  __device__ float at(std::int64_t t) const {
    if (!exists) return 0.0F;
    return variable ? element_at(data, origin + t * time, io) : static_cast<const float*>(data)[origin];
  }
};

template <int K, bool kHold>
__global__ void __launch_bounds__(kDenseThreads) dense_kernel(const ScanArgs args, const DType io) {
  const std::int64_t rows = args.batch * args.dim;
  const std::int64_t own_row = (blockIdx.x * static_cast<std::int64_t>(kDenseThreads) + threadIdx.x) / K;
  // Shuffles want whole warps: lanes past the last row do that row again, and write nothing.
  const std::int64_t row = own_row < rows ? own_row : rows - 1;
  const std::int64_t b = row / args.dim;
  const std::int64_t d = row % args.dim;
  const std::int64_t g = d / args.channels_per_group;
  const std::int64_t sequence = b * args.sequence.batch + d * args.sequence.dim;
  const int lane = threadIdx.x % K;
  const int n = static_cast<int>(args.dstate);
  const bool has_state = lane < n;
  const std::int64_t state = row * n + lane;

  float A[K];
  float norm = 0.0F;
#pragma unroll
  for (int j = 0; j < K; ++j) {
    A[j] = has_state && j < n ? args.A[(d * n + lane) * n + j] : 0.0F;
    norm += fabsf(A[j]);
  }
  norm = lane_max<K>(norm);
  const Projection B(args.B, io, args.variable_b, args.b_strides, b, d, g, lane, has_state);
  const Projection C(args.C, io, args.variable_c, args.c_strides, b, d, g, lane, has_state);
  const float bias = args.delta_bias != nullptr ? args.delta_bias[d] : 0.0F;
  const float skip = args.D != nullptr ? args.D[d] : 0.0F;
  float h = has_state && args.initial_state != nullptr ? args.initial_state[state] : 0.0F;

  for (std::int64_t start = 0; start < args.seqlen; start += K) {
    const int valid = steps_within(start, K, args.seqlen);
    const std::int64_t own = sequence + (start + lane) * args.sequence.time;
    float own_u = 0.0F;
    float own_delta = 0.0F;
    if (lane < valid) {
      own_u = element_at(args.u, own, io);
      own_delta = element_at(args.delta, own, io) + bias;
      if (args.delta_softplus) own_delta = softplus(own_delta);
    }
    float own_y = 0.0F;
    for (int t = 0; t < valid; ++t) {
      const float delta = __shfl_sync(kWholeWarp, own_delta, t, K);
      const float input = B.at(start + t) * __shfl_sync(kWholeWarp, own_u, t, K);
      if constexpr (kHold)
        h = hold_step<K>(A, norm, delta, h, input, lane);
      else
        h = bilinear_step<K>(A, delta, h, input, lane, n);
      const float y = lane_sum<K>(C.at(start + t) * h);
      if (t == lane) own_y = y;
    }
    if (lane < valid && own_row < rows) {
      own_y += skip * own_u;
      if (args.z != nullptr) own_y *= silu(element_at(args.z, own, io));
      store_element(element_of(args.out, own, io), own_y, io);
    }
  }
  if (has_state && own_row < rows) args.last_state[state] = h;
}

}  // namespace ssmbench::dense
